//! The pools of a case, which are written in IPv4, in the families that its cluster has.

use std::collections::BTreeSet;

use chainbreak_model::{case::IpFamily, pod_network::POOLS};
use ipnet::IpNet;
use serde_json::{Value, json};

/// By which pods choose pools of IPv6.
const POOLS_OF_IPV6: &str = "cni.projectcalico.org/ipv6pools";

/// The `IPPool`s among a case's objects, as Calico's manifests define them: each as it is written, whatever families there are (the case makes it,
/// and its pods name it), and once for IPv6.
pub(crate) fn pools(objects: &[Value], families: &[IpFamily]) -> Vec<Value> {
    let declared = objects.iter().filter(|it| it["kind"] == "IPPool");
    let families = families.iter().copied().chain([IpFamily::V4]);
    let families: BTreeSet<IpFamily> = families.collect();
    let all = declared.flat_map(|pool| {
        families
            .iter()
            .filter_map(|family| in_family(pool, *family))
    });
    all.collect()
}

/// None where no IPv6 network has just the twins of its addresses.
fn in_family(pool: &Value, family: IpFamily) -> Option<Value> {
    let mut pool = pool.clone();
    pool["apiVersion"] = "crd.projectcalico.org/v1".into();
    let written = pool["spec"]["cidr"].as_str()?.parse::<IpNet>().ok()?;
    if family == IpFamily::V6 && matches!(written, IpNet::V4(_)) {
        let name = pool["metadata"]["name"].as_str()?;
        pool["metadata"]["name"] = of_ipv6(name).into();
        pool["spec"]["cidr"] = family.net(written)?.to_string().into();
        // A block of the usual size, which the pool's would not be.
        pool["spec"].as_object_mut()?.remove("blockSize");
    }
    Some(pool)
}

/// Has pods that choose pools choose those of IPv6 as well, where they get such addresses.
pub(crate) fn choose(object: &mut Value, families: &[IpFamily]) {
    if !families.contains(&IpFamily::V6) {
        return;
    }
    let metadata = if object["kind"] == "Pod" {
        "/metadata/annotations"
    } else {
        "/spec/template/metadata/annotations"
    };
    let Some(annotations) = object.pointer_mut(metadata) else {
        return;
    };
    let chosen = annotations[POOLS].as_str();
    let chosen = chosen.and_then(|it| serde_json::from_str::<Vec<String>>(it).ok());
    if let Some(chosen) = chosen {
        let chosen: Vec<String> = chosen.iter().map(|name| of_ipv6(name)).collect();
        annotations[POOLS_OF_IPV6] = json!(chosen).to_string().into();
    }
}

fn of_ipv6(name: &str) -> String {
    format!("{name}-ipv6")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_there_in_each_family_and_pods_choose_it_in_each() {
        let pool = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": { "name": "overlay" },
            "spec": { "cidr": "10.30.0.0/16", "vxlanMode": "Always", "blockSize": 26 },
        });
        let told = |families: &[IpFamily]| {
            let pools = pools(&[json!({ "kind": "Pod" }), pool.clone()], families);
            let told = pools.iter().map(|it| {
                assert_eq!(it["apiVersion"], "crd.projectcalico.org/v1");
                assert_eq!(it["spec"]["vxlanMode"], "Always");
                (it["metadata"]["name"].clone(), it["spec"]["cidr"].clone())
            });
            told.collect::<Vec<_>>()
        };
        let v4 = (json!("overlay"), json!("10.30.0.0/16"));
        let v6 = (json!("overlay-ipv6"), json!("fd00:10:30::/96"));
        assert_eq!(told(&[IpFamily::V4]), std::slice::from_ref(&v4));
        let both = [v4, v6];
        assert_eq!(told(&[IpFamily::V6]), both);
        assert_eq!(told(&[IpFamily::V6, IpFamily::V4]), both);

        let mut pod =
            json!({ "kind": "Pod", "metadata": { "annotations": { POOLS: "[\"overlay\"]" } } });
        let before = pod.clone();
        choose(&mut pod, &[IpFamily::V4]);
        assert_eq!(pod, before);
        choose(&mut pod, &[IpFamily::V6]);
        assert_eq!(
            pod["metadata"]["annotations"][POOLS_OF_IPV6],
            "[\"overlay-ipv6\"]"
        );
        let mut set = json!({ "kind": "Deployment", "spec": { "template": pod.take() } });
        choose(&mut set, &[IpFamily::V6]);
        let annotations = &set["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations[POOLS_OF_IPV6], "[\"overlay-ipv6\"]");
    }
}
