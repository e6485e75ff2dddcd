//! conntrack's table, as its program lists it and as netlink tells it: an entry printed again is read the same, and the
//! message that deletes it names it.
#![no_main]

use chainbreak_netfilter::{
    conntrack::{Flow, dropping, flows, statistics},
    netlink::{Answer, answers, deletion},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (heard, _interrupted) = answers(bytes);
    for answer in heard {
        if let Answer::Flow(flow) = answer {
            is_itself(&flow);
        }
    }
    let text = String::from_utf8_lossy(bytes);
    flows(&text).for_each(|flow| is_itself(&flow));
    let sums = statistics(&text);
    for dropped in dropping(&text).values() {
        assert!(sums.values().any(|sum| *sum >= dropped.packets) || dropped.packets == 0);
    }
});

fn is_itself(flow: &Flow) {
    let printed = flow.to_string();
    assert_eq!(Flow::parse(&printed).as_ref(), Some(flow), "{printed}");
    let told = serde_json::to_string(flow).expect("an entry can be told");
    assert_eq!(
        &serde_json::from_str::<Flow>(&told).expect("and heard"),
        flow
    );
    if let Some(message) = deletion(flow) {
        let length = message
            .first_chunk()
            .map(|bytes| u32::from_ne_bytes(*bytes));
        assert_eq!(length.map(|it| it as usize), Some(message.len()));
    }
}
