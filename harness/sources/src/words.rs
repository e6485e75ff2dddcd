//! What Go's complaints mean to a person who wants a kube-proxy. Pure.

/// What kept a command of Go from what it was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoError {
    /// A file system is full.
    NoRoom,
    /// The origin of modules cannot be reached.
    NoOrigin,
    /// The origin does not have a module, or this version of it.
    NotThere,
    /// This Go is older than a go.mod asks for.
    TooOld,
    /// Anything else.
    Other,
}

/// Words that tell; the first that is found counts.
const TELLING: [(&str, GoError); 15] = [
    ("no space left on device", GoError::NoRoom),
    ("disk quota exceeded", GoError::NoRoom),
    ("requires go >=", GoError::TooOld),
    ("requires newer Go version", GoError::TooOld),
    ("invalid go version", GoError::TooOld),
    ("unknown revision", GoError::NotThere),
    ("no matching versions", GoError::NotThere),
    ("404 Not Found", GoError::NotThere),
    ("410 Gone", GoError::NotThere),
    ("403 Forbidden", GoError::NotThere),
    ("module lookup disabled", GoError::NoOrigin),
    ("dial tcp", GoError::NoOrigin),
    ("i/o timeout", GoError::NoOrigin),
    ("connection reset", GoError::NoOrigin),
    ("TLS handshake", GoError::NoOrigin),
];

/// What a complaint says.
pub fn trouble(said: &str) -> GoError {
    let found = TELLING.iter().find(|(words, _)| said.contains(words));
    found.map_or(GoError::Other, |(_, trouble)| *trouble)
}

/// The line of a complaint that tells most, to stand at the end of one of ours: the one with the telling words, else the last.
pub fn telling(said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let tells = |line: &&str| TELLING.iter().any(|(words, _)| line.contains(words));
    let line = lines().find(tells).or_else(|| lines().next_back());
    line.unwrap_or("it failed without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_of_go_are_told_apart() {
        for (said, trouble_) in [
            (
                "go: k8s.io/kubernetes@v1.99.0: invalid version: unknown revision v1.99.0",
                GoError::NotThere,
            ),
            (
                "k8s.io/x@v0.32.13: reading https://proxy.example/x.zip: 403 Forbidden\n\tserver response: gone",
                GoError::NotThere,
            ),
            (
                "go: go.mod requires go >= 1.26.0 (running go 1.24.4; GOTOOLCHAIN=local)",
                GoError::TooOld,
            ),
            (
                "Get \"https://proxy.golang.org/x\": dial tcp: lookup proxy.golang.org: no such host",
                GoError::NoOrigin,
            ),
            (
                "write /x/b001/_pkg_.a: no space left on device",
                GoError::NoRoom,
            ),
            ("./main.go:9:2: undefined: app", GoError::Other),
            ("", GoError::Other),
        ] {
            assert_eq!(trouble(said), trouble_, "{said}");
        }
    }

    #[test]
    fn the_line_that_tells_is_taken_out_of_many() {
        let said = "go: finding module\n\tx: 403 Forbidden\n\tserver response: no\n";
        assert_eq!(telling(said), "x: 403 Forbidden");
        assert_eq!(telling("one\ntwo\n\n"), "two");
        assert_eq!(telling(""), "it failed without a word");
    }
}
