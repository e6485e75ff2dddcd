//! `pods/log`.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::{Response, body::Frame};
use jiff::Timestamp;

use super::{ContainerId, Kubelets, Line};
use crate::{
    error::ApiError,
    query::Query,
    server::{Body, response},
};

/// What of a log is wanted.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    follow: bool,
    timestamps: bool,
    /// So many of the last lines.
    tail: Option<usize>,
    since: Option<Timestamp>,
    /// So many bytes at most.
    bytes: Option<usize>,
}

impl Wanted {
    fn of(query: &Query, now: Timestamp) -> Result<Self, ApiError> {
        let number = |name| {
            let found = query.number(name)?;
            Ok::<_, ApiError>(found.map(|it| usize::try_from(it).unwrap_or(usize::MAX)))
        };
        let ago = query.number("sinceSeconds")?.map(Duration::from_secs);
        let ago = ago.map(|ago| now.checked_sub(ago).unwrap_or(Timestamp::MIN));
        let time = match query.text("sinceTime") {
            "" => None,
            text => {
                let wrong = |error| ApiError::BadRequest(format!("sinceTime {text:?}: {error}"));
                Some(text.parse().map_err(wrong)?)
            }
        };
        if ago.is_some() && time.is_some() {
            let both = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            return Err(ApiError::BadRequest(both.to_owned()));
        }
        Ok(Self {
            follow: query.flag("follow"),
            timestamps: query.flag("timestamps"),
            tail: number("tailLines")?,
            since: ago.or(time),
            bytes: number("limitBytes")?,
        })
    }

    /// What of the lines that were said is shown.
    fn of_lines(&self, mut lines: Vec<Line>) -> Vec<Line> {
        lines.retain(|line| self.since.is_none_or(|since| line.at >= since));
        let most = self.tail.unwrap_or(usize::MAX);
        lines.split_off(lines.len().saturating_sub(most))
    }

    fn shown(&self, line: &Line) -> String {
        let Line { at, text } = line;
        if self.timestamps {
            format!("{at} {text}\n")
        } else {
            format!("{text}\n")
        }
    }
}

pub(super) fn answer(
    kubelets: &dyn Kubelets,
    of: &ContainerId,
    query: &Query,
    now: Timestamp,
) -> Result<Response<Body>, ApiError> {
    let wanted = Wanted::of(query, now)?;
    let previous = query.flag("previous");
    let ContainerId { pod, container, .. } = of;
    let said = kubelets.said(of, previous).ok_or_else(|| {
        ApiError::BadRequest(if previous {
            format!("previous terminated container {container:?} in pod {pod:?} not found")
        } else {
            format!("container {container:?} in pod {pod:?} is waiting to start")
        })
    })?;
    let lines = stream::iter(wanted.of_lines(said.lines));
    let more = if wanted.follow {
        said.more
    } else {
        stream::empty().boxed()
    };
    let mut left = wanted.bytes.unwrap_or(usize::MAX);
    let texts = lines
        .chain(more)
        .map(move |line| Bytes::from(wanted.shown(&line)));
    let limited = texts.map(move |text| {
        let part = text.slice(..text.len().min(left));
        left -= part.len();
        part
    });
    let frames = limited
        .take_while(|part| std::future::ready(!part.is_empty()))
        .map(|part| Ok(Frame::data(part)));
    Ok(response(
        200,
        "text/plain",
        StreamBody::new(frames).boxed_unsync(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Line> {
        let line = |second| Line {
            at: Timestamp::from_second(second).unwrap(),
            text: format!("at {second}").into(),
        };
        (100..105).map(line).collect()
    }

    fn shown(query: &str) -> String {
        let now = Timestamp::from_second(110).unwrap();
        let wanted = Wanted::of(&Query::parse(query), now).unwrap();
        let lines = wanted.of_lines(lines());
        lines.iter().map(|line| wanted.shown(line)).collect()
    }

    #[test]
    fn the_last_lines_and_those_since_a_time_are_shown() {
        assert_eq!(shown("tailLines=2"), "at 103\nat 104\n");
        assert_eq!(shown("tailLines=0"), "");
        assert_eq!(shown("sinceSeconds=6"), "at 104\n");
        assert_eq!(shown("sinceTime=1970-01-01T00:01:43Z"), "at 103\nat 104\n");
        assert_eq!(
            shown("sinceSeconds=7&tailLines=1&timestamps=true"),
            "1970-01-01T00:01:44Z at 104\n"
        );
        assert_eq!(shown("sinceSeconds=99999999999999").lines().count(), 5);
    }

    #[test]
    fn what_cannot_be_a_time_or_a_number_is_refused() {
        for query in [
            "tailLines=-1",
            "sinceTime=now",
            "sinceSeconds=1&sinceTime=1970-01-01T00:00:00Z",
        ] {
            let wanted = Wanted::of(&Query::parse(query), Timestamp::UNIX_EPOCH);
            assert!(wanted.is_err(), "{query}");
        }
    }
}
