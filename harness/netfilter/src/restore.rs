//! Inputs of `iptables-restore`.

use crate::{command::Command, error::NetfilterError};

/// One table's part of a restore input. Each is a transaction of its own: it is applied whole at its
/// `COMMIT` or not at all, and parts before a failing one stay applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The table.
    pub table: String,
    /// Its lines in order, each with its line number from 1.
    pub commands: Vec<(usize, Command)>,
    /// The line of its `COMMIT`; without one nothing of it is applied.
    pub commit: Option<usize>,
}

/// Takes a restore input apart. A table may come several times (Felix does so on nft).
pub fn sections(input: &str) -> Result<Vec<Section>, NetfilterError> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, line) in input.lines().enumerate() {
        let number = index + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(table) = line.strip_prefix('*') {
            sections.push(Section {
                table: table.to_owned(),
                commands: Vec::new(),
                commit: None,
            });
            continue;
        }
        let open = sections
            .last_mut()
            .filter(|section| section.commit.is_none());
        let section = open.ok_or_else(|| NetfilterError::NoTable {
            line: number,
            text: line.to_owned(),
        })?;
        if line == "COMMIT" {
            section.commit = Some(number);
        } else {
            section
                .commands
                .push((number, Command::parse_line(line, number)?));
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_may_come_twice_and_a_last_commit_may_be_missing() {
        let input = "# x\n*nat\n:X - -\n-D A -j X\nCOMMIT\n\n*nat\n--delete-chain X\n";
        let sections = sections(input).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(sections[0].commit, Some(5));
        assert_eq!(sections[0].commands[1].0, 4);
        let delete = Command::DeleteChain {
            chain: Some("X".to_owned()),
        };
        assert_eq!(
            (sections[1].commit, &sections[1].commands[0].1),
            (None, &delete)
        );
    }

    #[test]
    fn what_stands_outside_of_a_table_is_refused() {
        for input in ["-A X -j DROP\n", "*nat\nCOMMIT\nCOMMIT\n", "*nat\nhello\n"] {
            assert!(sections(input).is_err(), "{input:?}");
        }
    }
}
