//! Which combinations of list and watch options are taken, and what a watch begins with. A bad
//! combination is refused as the API server refuses it (`ValidateListOptions` of apimachinery's
//! meta/internalversion): 422, naming each option.

use serde_json::json;

use crate::{
    error::{ApiError, Cause},
    query::Query,
};

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

/// What a watch begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// Every change after this revision.
    After(u64),
    /// The present state as additions, then what changes.
    State,
    /// The present state as additions, then a bookmark that says it is whole, then what changes.
    StateThenBookmark,
    /// What changes from now on.
    Now,
}

/// Refuses options that contradict each other.
pub(crate) fn check(query: &Query) -> Result<(), ApiError> {
    let causes = if query.flag("watch") {
        wrong_for_watch(query)
    } else {
        wrong_for_list(query)?
    };
    if causes.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid {
        kind: "ListOptions.meta.k8s.io".to_owned(),
        name: String::new(),
        causes,
    })
}

/// What a watch with these options begins with; `current` is the newest revision.
pub(crate) fn begin(query: &Query, current: u64) -> Result<Begin, ApiError> {
    let asked = query.number("resourceVersion")?.unwrap_or_default();
    if !query.has(INITIAL) {
        return Ok(match asked {
            0 => Begin::State,
            revision => Begin::After(revision),
        });
    }
    if asked > current {
        return Err(ApiError::TooLargeResourceVersion { asked, current });
    }
    Ok(match (query.flag(INITIAL), asked) {
        (true, _) if query.flag("allowWatchBookmarks") => Begin::StateThenBookmark,
        (true, _) => Begin::State,
        (false, 0) => Begin::Now,
        (false, revision) => Begin::After(revision),
    })
}

fn wrong_for_watch(query: &Query) -> Vec<Cause> {
    let mut causes = Vec::new();
    let matching = query.text(MATCH);
    if query.has(INITIAL) && matching != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if matching.is_empty() {
        return causes;
    }
    if !query.has(INITIAL) {
        let why =
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if matching != "NotOlderThan" {
        let value = json!(matching);
        causes.push(Cause::unsupported(MATCH, &value, &["NotOlderThan"]));
    }
    causes
}

fn wrong_for_list(query: &Query) -> Result<Vec<Cause>, ApiError> {
    let mut causes = Vec::new();
    let (matching, revision) = (query.text(MATCH), query.text("resourceVersion"));
    let goes_on = !query.text("continue").is_empty();
    if !matching.is_empty() {
        if revision.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if goes_on {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        match matching {
            "Exact" if revision == "0" => {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(Cause::forbidden(MATCH, why));
            }
            "Exact" | "NotOlderThan" => {}
            other => {
                let known = ["Exact", "NotOlderThan", ""];
                causes.push(Cause::unsupported(MATCH, &json!(other), &known));
            }
        }
    }
    if query.has(INITIAL) {
        let why = "sendInitialEvents is forbidden for list";
        causes.push(Cause::forbidden(INITIAL, why));
    }
    if causes.is_empty() && goes_on && !["", "0"].contains(&revision) {
        let why = "specifying resource version is not allowed when using continue";
        return Err(ApiError::BadRequest(why.to_owned()));
    }
    Ok(causes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: &str) -> Option<(u16, String)> {
        let refused = check(&Query::parse(query)).err()?;
        Some((refused.code(), refused.to_string()))
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_by_name() {
        let refused = |query: &str| {
            let (code, message) = refusal(query).unwrap();
            assert_eq!(code, 422, "{query}");
            message
        };
        assert_eq!(
            refused("watch=1&sendInitialEvents=true"),
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: \
             sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        );
        assert!(refused("watch=1&resourceVersionMatch=NotOlderThan").contains("unless"));
        let exact = "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact";
        assert!(refused(exact).contains("supported values: \"NotOlderThan\""));
        assert!(refused("sendInitialEvents=false").contains("forbidden for list"));
        assert!(refused("resourceVersionMatch=Exact").contains("unless resourceVersion"));
        assert!(refused("resourceVersion=0&resourceVersionMatch=Exact").contains("exact"));
        assert!(refused("resourceVersion=5&resourceVersionMatch=Newer").contains("\"Newer\""));
        let page = "continue=x&resourceVersion=5&resourceVersionMatch=Exact";
        assert!(refused(page).contains("when continue"));
        let (code, _) = refusal("continue=x&resourceVersion=5").unwrap();
        assert_eq!(code, 400);
    }

    #[test]
    fn what_clients_ask_is_taken() {
        for query in [
            "limit=500&resourceVersion=0",
            "limit=500&resourceVersion=0&resourceVersionMatch=NotOlderThan",
            "continue=x&limit=500",
            "watch=true&resourceVersion=7&allowWatchBookmarks=true",
            "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        ] {
            assert_eq!(refusal(query), None, "{query}");
        }
    }

    #[test]
    fn a_watch_begins_where_its_options_say() {
        let begins = |query: &str| begin(&Query::parse(query), 9);
        assert_eq!(begins(""), Ok(Begin::State));
        assert_eq!(begins("resourceVersion=0"), Ok(Begin::State));
        assert_eq!(begins("resourceVersion=7"), Ok(Begin::After(7)));
        let initial = "sendInitialEvents=true&resourceVersion=7";
        assert_eq!(begins(initial), Ok(Begin::State));
        let marked = format!("{initial}&allowWatchBookmarks=true");
        assert_eq!(begins(&marked), Ok(Begin::StateThenBookmark));
        assert_eq!(begins("sendInitialEvents=false"), Ok(Begin::Now));
        let late = begins("sendInitialEvents=true&resourceVersion=10");
        assert_eq!(late.map_err(|error| error.code()), Err(504));
    }
}
