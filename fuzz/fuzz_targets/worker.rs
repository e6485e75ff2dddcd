//! What a case's parent hears of its worker, the engine of a probe, and the recorder of a shim: heard and said again it is
//! the same, and hearing it takes no more memory than its length accounts for.
#![no_main]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fmt::Debug,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use chainbreak_model::event::Event;
use chainbreak_probe::wire::{Errand, Report};
use libfuzzer_sys::fuzz_target;
use serde::{Serialize, de::DeserializeOwned};

#[path = "../../harness/cli/src/worker/said.rs"]
mod said;
#[path = "../../harness/lab/shim/wire.rs"]
mod wire;

use said::{Line, Said};
use wire::{Done, Tag, frame, read_words, words};

/// How many bytes in memory a byte of a line may become: `"",` is an empty string in a list that doubles as it grows.
const TIMES: usize = 64;
/// What anything takes.
const BESIDE: usize = 16 << 10;

fuzz_target!(|bytes: &[u8]| {
    let most = bytes.len() * TIMES + BESIDE;
    let taken = taken_by(|| {
        drop(serde_json::from_slice::<Said>(bytes));
        drop(serde_json::from_slice::<Event>(bytes));
        drop(serde_json::from_slice::<Report>(bytes));
        drop(read_words(bytes));
    });
    assert!(taken <= most, "{taken} bytes for {}", bytes.len());
    if let Ok(said) = serde_json::from_slice::<Said>(bytes) {
        of_a_worker(said);
    }
    same_again::<Report>(bytes);
    same_again::<Errand>(bytes);
    of_a_shim(bytes);
});

fn of_a_worker(said: Said) {
    match said {
        Said::Began(clock) => {
            let line = told(&Line::Began(clock));
            assert!(matches!(heard(&line), Said::Began(again) if again == clock));
        }
        Said::Artifact(artifact) => {
            let line = told(&Line::Artifact(artifact.clone()));
            assert!(matches!(heard(&line), Said::Artifact(again) if again == artifact));
        }
        Said::Event(text) => {
            let Ok(event) = serde_json::from_str::<Event>(text.get()) else {
                return;
            };
            let line = told(&Line::Event(event.clone()));
            // A line is what ends where the next begins.
            assert!(!line.contains('\n'));
            let Said::Event(again) = heard(&line) else {
                panic!("{line}");
            };
            assert_eq!(serde_json::from_str::<Event>(again.get()).ok(), Some(event));
        }
    }
}

fn told(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("a line can be said")
}

fn heard(line: &str) -> Said<'_> {
    serde_json::from_str(line).expect("what was said is heard")
}

fn same_again<T: Debug + PartialEq + Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<T>(bytes) {
        assert_eq!(serde_json::from_str::<T>(&told(&value)).ok(), Some(value));
    }
}

fn of_a_shim(bytes: &[u8]) {
    if let Some(read) = read_words(bytes) {
        assert_eq!(words(&read), bytes);
    }
    if let Some(done) = Done::read(bytes) {
        assert_eq!(done.bytes(), bytes);
    }
    if let Some((tag, rest)) = bytes.split_first()
        && let Some(tag) = Tag::of(*tag)
    {
        let framed = frame(tag, rest);
        assert_eq!((framed[0], &framed[5..]), (tag as u8, rest));
    }
}

/// The most bytes that it had at a time.
fn taken_by(work: impl FnOnce()) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    work();
    MOST.load(Relaxed).saturating_sub(before)
}

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

struct Counted;

// SAFETY: every call is the system's, with the same arguments.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
}
