//! What third parties do: nothing undoes it, but that they hold a lock, or that a program of theirs goes on.

use super::{
    super::{
        super::{
            fields::{note, regex, text, texts, word},
            name,
            traffic::PLACE,
            words::{BACKENDS, FAMILIES, NODE, TABLES},
        },
        Word,
    },
    FOR, Reading, done, fault,
};
use crate::{
    case::{ADMIN, Family, Fault, RuleBackend, Run, Step, TableRef},
    language::{Field, Kind, Mapping, default, needed, optional, words},
    yaml::Value,
};

pub(in super::super) static STEPS: [Word; 4] = [
    fault(
        "lock",
        &LOCK,
        "Somebody holds the lock that all legacy iptables take.",
        |it| it.lock(),
    ),
    fault(
        "flush",
        &FLUSH,
        "A third party deletes all rules of a chain, or of a table.",
        |it| it.flush(),
    ),
    fault(
        "delete-rule",
        &DELETE_RULE,
        "A third party deletes the rules that an expression finds. That there is none is inconclusive.",
        |it| it.delete_rule(),
    ),
    fault(
        "run",
        &RUN,
        "A third party's commands. They must end well within 30s; what they leave in the background goes on. With a `for` they run beside the next steps and are killed at the end; that they failed before is inconclusive.",
        |it| it.run(),
    ),
];

static LOCK: Mapping = Mapping {
    called: "lock",
    doc: "",
    fields: &[&[WHERE, FOR]],
};

static FLUSH: Mapping = Mapping {
    called: "flush",
    doc: "",
    fields: &[
        &TABLE,
        &[optional(
            "chain",
            Kind::Text,
            "Which chain; the whole table when not given.",
        )],
    ],
};

static DELETE_RULE: Mapping = Mapping {
    called: "delete-rule",
    doc: "",
    fields: &[
        &TABLE,
        &[
            needed("chain", Kind::Text, "Which chain."),
            needed(
                "matches",
                Kind::Text,
                "A regular expression (Rust's syntax) that finds the rules in what iptables-save or nft list prints.",
            ),
        ],
    ],
};

static RUN: Mapping = Mapping {
    called: "run",
    doc: "",
    fields: &[&[
        optional("at", PLACE, "Where; every node when not given."),
        default("as", Kind::Name, ADMIN, "Who does this, as reports say."),
        needed(
            "command",
            Kind::Any(&[Kind::Text, Kind::NonEmpty(&Kind::Text)]),
            "A script for sh, or a program and its arguments.",
        ),
        FOR,
    ]],
};

const WHERE: Field = optional("node", NODE, "Where; every node when not given.");

static TABLE: [Field; 4] = [
    WHERE,
    needed(
        "table",
        Kind::Text,
        "Which table: nat, filter, mangle, raw; of nftables any.",
    ),
    optional(
        "backend",
        Kind::Word(|| words(&BACKENDS)),
        "Whose rules: iptables-legacy's, iptables-nft's or nft's; the node's own iptables' when not given.",
    ),
    default(
        "family",
        Kind::Word(|| words(&FAMILIES)),
        "ip",
        "Of which packets.",
    ),
];

impl Reading<'_> {
    fn lock(&self) -> Option<Step> {
        let node = self.node();
        self.lasting(node.map(|node| Fault::Lock { node }))
    }

    fn flush(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let (node, rules) = (self.node(), self.table());
        let chain = self.fields.maybe("chain", |node| {
            text(gathered, node, "chain").map(str::to_owned)
        });
        done(Some(Fault::Flush {
            node: node?,
            rules: rules?,
            chain: chain?,
        }))
    }

    fn delete_rule(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let (node, rules) = (self.node(), self.table());
        let chain = self
            .fields
            .need("chain", |node| text(gathered, node, "chain"));
        let matches = self
            .fields
            .need("matches", |node| regex(gathered, node, "matches"));
        done(Some(Fault::DeleteRule {
            node: node?,
            rules: rules?,
            chain: chain?.to_owned(),
            matches: matches?,
        }))
    }

    /// `backend:`, `family:` and `table:`.
    fn table(&self) -> Option<TableRef> {
        let gathered = self.fields.gathered;
        let backend = self
            .fields
            .maybe("backend", |node| word(gathered, node, "backend", &BACKENDS));
        let family = self
            .fields
            .or_default("family", |node| word(gathered, node, "family", &FAMILIES));
        let native = backend == Some(Some(RuleBackend::Nftables));
        let table = self.fields.need("table", |node| {
            if native {
                text(gathered, node, "table").map(str::to_owned)
            } else {
                word(gathered, node, "table", &TABLES).map(str::to_owned)
            }
        });
        if family == Some(Family::Inet) && !native {
            let message = "iptables has no table for both families";
            let hint = "write `backend: nftables`".to_owned();
            note(gathered, &self.fields.key("family"), message, Some(hint));
        }
        Some(TableRef {
            backend: backend?,
            family: family?,
            table: table?,
        })
    }

    fn run(&self) -> Option<Step> {
        let gathered = self.fields.gathered;
        let at = self.fields.maybe("at", |node| self.place(node));
        let who = self
            .fields
            .or_default("as", |node| name(gathered, node, "as").map(str::to_owned));
        let argv = self.fields.need("command", |node| {
            let argv = if let Value::Seq(_) = &node.value {
                texts(gathered, node, "command")?
            } else {
                let script = text(gathered, node, "command")?.to_owned();
                vec!["sh".to_owned(), "-c".to_owned(), script]
            };
            if argv.is_empty() {
                note(gathered, &node.place, "the command is empty", None);
            }
            Some(argv)
        });
        let fault = || {
            Some(Fault::Run(Run {
                at: at?,
                who: who?,
                argv: argv?,
            }))
        };
        self.lasting(fault())
    }
}
