//! Where images are asked for: their own registry, or one that stands for it.

use std::{collections::BTreeMap, str::FromStr};

use oci_client::{Reference, client::ClientProtocol};

/// The environment's variable that names mirrors.
pub const MIRRORS: &str = "CHAINBREAK_MIRRORS";

/// Registries, and who is asked in place of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mirrors(BTreeMap<String, Mirror>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirror {
    protocol: ClientProtocol,
    host: String,
    /// What stands before every repository there, with a slash at its end.
    prefix: String,
}

impl FromStr for Mirrors {
    type Err = String;

    /// Reads `registry.k8s.io=http://127.0.0.1:5000,docker.io=https://mirror.example/hub`.
    fn from_str(text: &str) -> Result<Self, String> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        words.map(mirror).collect::<Result<_, _>>().map(Self)
    }
}

fn mirror(word: &str) -> Result<(String, Mirror), String> {
    let wrong = || {
        format!(
            "{word:?} is no mirror: write REGISTRY=URL, as registry.k8s.io=http://127.0.0.1:5000"
        )
    };
    let (registry, url) = word.split_once('=').ok_or_else(wrong)?;
    let (protocol, rest) = match url.split_once("://") {
        Some(("http", rest)) => (ClientProtocol::Http, rest),
        Some(("https", rest)) => (ClientProtocol::Https, rest),
        _ => return Err(wrong()),
    };
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if registry.is_empty() || host.is_empty() {
        return Err(wrong());
    }
    let prefix = prefix.trim_matches('/');
    let prefix = match prefix {
        "" => String::new(),
        _ => format!("{prefix}/"),
    };
    let host = host.to_owned();
    let mirror = Mirror {
        protocol,
        host,
        prefix,
    };
    Ok((registry.to_owned(), mirror))
}

impl Mirrors {
    /// Where an image is asked for, and how. Plain HTTP is for a mirror that is given so, and for a registry on the machine itself.
    pub(crate) fn way_to(&self, image: &Reference) -> (Reference, ClientProtocol) {
        let Some(mirror) = self.0.get(image.registry()) else {
            let protocol = if is_loopback(image.registry()) {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            };
            return (image.clone(), protocol);
        };
        let host = mirror.host.clone();
        let repository = format!("{}{}", mirror.prefix, image.repository());
        let there = match (image.digest(), image.tag()) {
            (Some(digest), _) => Reference::with_digest(host, repository, digest.to_owned()),
            (None, tag) => {
                let tag = tag.unwrap_or("latest").to_owned();
                Reference::with_tag(host, repository, tag)
            }
        };
        (there, mirror.protocol.clone())
    }
}

fn is_loopback(registry: &str) -> bool {
    let host = match registry.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => registry.split(':').next(),
    };
    let host = host.unwrap_or_default();
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(mirrors: &str, image: &str) -> (String, ClientProtocol) {
        let mirrors: Mirrors = mirrors.parse().unwrap();
        let image: Reference = image.parse().unwrap();
        let (there, protocol) = mirrors.way_to(&image);
        (there.whole(), protocol)
    }

    #[test]
    fn a_mirror_is_asked_for_the_images_of_its_registry_and_of_no_other() {
        let mirrors = "registry.k8s.io=http://127.0.0.1:5000,docker.io=https://mirror.example/hub/";
        let digest = format!("sha256:{}", "0".repeat(64));
        for (image, there, protocol) in [
            (
                "registry.k8s.io/kube-proxy:v1.34.2",
                "127.0.0.1:5000/kube-proxy:v1.34.2".to_owned(),
                ClientProtocol::Http,
            ),
            (
                "calico/node:v3.28.1",
                "mirror.example/hub/calico/node:v3.28.1".to_owned(),
                ClientProtocol::Https,
            ),
            (
                &format!("docker.io/calico/node@{digest}"),
                format!("mirror.example/hub/calico/node@{digest}"),
                ClientProtocol::Https,
            ),
            (
                "quay.io/calico/node:v3.32.1",
                "quay.io/calico/node:v3.32.1".to_owned(),
                ClientProtocol::Https,
            ),
        ] {
            assert_eq!(way(mirrors, image), (there, protocol), "{image}");
        }
    }

    #[test]
    fn plain_http_is_for_the_machine_itself() {
        for (image, protocol) in [
            ("localhost:5000/x:1", ClientProtocol::Http),
            ("127.0.0.1:5000/x:1", ClientProtocol::Http),
            ("localhost.example.com/x:1", ClientProtocol::Https),
            ("127.0.0.1.example.com/x:1", ClientProtocol::Https),
            ("192.0.2.1:5000/x:1", ClientProtocol::Https),
        ] {
            assert_eq!(way("", image).1, protocol, "{image}");
        }
    }

    #[test]
    fn what_is_no_mirror_is_refused_with_what_to_write() {
        for text in [
            "registry.k8s.io",
            "x=",
            "=http://y",
            "x=y:5000",
            "x=ftp://y",
            "x=http:///y",
        ] {
            let why = text.parse::<Mirrors>().unwrap_err();
            assert!(why.contains("is no mirror: write REGISTRY=URL"), "{why}");
        }
    }
}
