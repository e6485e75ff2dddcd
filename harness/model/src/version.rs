//! Versions as scenarios write them, and the oldest ones whose behaviour is known.

/// Accepts kube-proxy versions, `1.32` or `1.32.4`.
pub(crate) fn kube_proxy(text: &str) -> Result<(), String> {
    let known = numbers(text)
        .filter(|n| matches!(n.as_slice(), [1, minor] | [1, minor, _] if *minor >= 20));
    known.map(|_| ()).ok_or_else(|| {
        format!("{text:?} is no version of kube-proxy: write 1.32 or 1.32.4; the oldest is 1.20")
    })
}

/// Accepts Calico versions, `v3.28` or `v3.28.1`.
pub(crate) fn calico(text: &str) -> Result<(), String> {
    let known = text.strip_prefix('v').and_then(numbers);
    let known =
        known.filter(|n| matches!(n.as_slice(), [3, minor] | [3, minor, _] if *minor >= 25));
    known.map(|_| ()).ok_or_else(|| {
        format!("{text:?} is no version of Calico: write v3.28 or v3.28.1; the oldest is v3.25")
    })
}

fn numbers(text: &str) -> Option<Vec<u16>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}
