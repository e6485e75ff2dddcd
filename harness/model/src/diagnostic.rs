//! Mistakes in a scenario or its manifests: all of them at once, each with file, line, column, caret
//! and, where there is one, a hint.
//!
//! `Display` renders plainly, for pipes and logs; [`miette::Diagnostic`] is for terminals.

use std::{
    cell::{Cell, RefCell},
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use miette::{LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use crate::{hidden::is_hidden, input::leads_out};

/// A file that was read.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
    /// The text, byte by byte as long, as it can be shown to a person.
    shown: String,
    reach: Reach,
}

/// Where a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In the scenario's folder.
    Inside,
    /// Elsewhere, perhaps where who wrote the scenario may not read: no line of it is quoted.
    Outside,
}

impl Reach {
    /// Of a path from the scenario's folder.
    pub(crate) fn of(folder: &Path, path: &Path) -> Self {
        if leads_out(folder, path) {
            Self::Outside
        } else {
            Self::Inside
        }
    }
}

impl Source {
    /// What of a text would do something to a terminal is shown as question marks, all of one that is not quoted as dots.
    pub(crate) fn new(file: &Path, text: &str, reach: Reach) -> Self {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            if reach == Reach::Outside && c != '\n' {
                shown.extend(std::iter::repeat_n('.', c.len_utf8()));
            } else if is_hidden(c) && !['\n', '\r', '\t'].contains(&c) {
                shown.extend(std::iter::repeat_n('?', c.len_utf8()));
            } else {
                shown.push(c);
            }
        }
        Self {
            file: file.to_owned(),
            text: text.to_owned(),
            shown,
            reach,
        }
    }
}

/// A stretch of a file's text, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) source: Arc<Source>,
    pub(crate) bytes: Range<usize>,
}

impl Place {
    /// The whole file: for mistakes that are nowhere in particular, shown at its first character.
    pub(crate) fn whole(source: &Arc<Source>) -> Self {
        Self {
            source: Arc::clone(source),
            bytes: 0..0,
        }
    }

    /// 1-based line and column, columns in characters.
    pub(crate) fn line_and_column(&self) -> (usize, usize) {
        let before = self.source.text.get(..self.bytes.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        (line, column)
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.source.file == other.source.file
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    place: Place,
    message: String,
    hint: Option<String>,
    /// A place that the hint ends with. Its line is counted only when it is shown: a file can have
    /// a hundred thousand mistakes of which fifty are.
    at: Option<Place>,
}

impl Diagnostic {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: harmless(&message.into()),
            hint: None,
            at: None,
        }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(harmless(&hint.into()));
        self
    }

    /// A hint that ends with the place's line number.
    #[must_use]
    pub(crate) fn hint_at(self, hint: &str, place: &Place) -> Self {
        Self {
            at: Some(place.clone()),
            ..self.hint(hint)
        }
    }

    /// The file it is in.
    pub fn file(&self) -> &Path {
        &self.place.source.file
    }

    /// 1-based line and column; columns count characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        self.place.line_and_column()
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right, where that can be said.
    pub fn hint_text(&self) -> Option<String> {
        let outside = (self.place.source.reach == Reach::Outside).then(|| OUTSIDE.to_owned());
        let hint = self.hint.clone().or(outside)?;
        Some(match &self.at {
            Some(place) => format!("{hint} {}", place.line_and_column().0),
            None => hint,
        })
    }
}

const OUTSIDE: &str = "the file is not in the scenario's folder, and is not quoted";

/// How much of a long line is shown on either side of a mistake.
const CONTEXT: usize = 60;

impl Diagnostic {
    /// `file:line:column: message`, the line, a caret under the mistake and the hint beside it.
    pub fn plain(&self) -> String {
        let (line, column) = self.line_and_column();
        let Source {
            file,
            text,
            shown,
            reach,
        } = &*self.place.source;
        let lines = match reach {
            Reach::Inside => text,
            Reach::Outside => shown,
        };
        let skipped = (column - 1).saturating_sub(CONTEXT);
        let shown = lines.lines().nth(line - 1).unwrap_or_default();
        let shown: String = shown
            .chars()
            .skip(skipped)
            .take(2 * CONTEXT)
            .map(visible)
            .collect();
        let indent = column - 1 - skipped;
        let marked = text.get(self.place.bytes.clone()).unwrap_or_default();
        let width = marked.lines().next().unwrap_or_default().chars().count();
        let caret = "^".repeat(width.clamp(1, 2 * CONTEXT - indent));
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        let hint = self
            .hint_text()
            .map(|hint| format!(" {hint}"))
            .unwrap_or_default();
        format!(
            "{file}:{line}:{column}: {message}\n  {number} | {shown}\n  {gutter} | {blank}{caret}{hint}\n",
            file = shown_path(file),
            message = self.message,
            shown = shown.trim_end(),
            blank = " ".repeat(indent),
        )
    }
}

/// What would do something to a terminal is one column wide here.
fn visible(c: char) -> char {
    match c {
        '\t' => '→',
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    }
}

/// Words in which a file's own may be; they can have several lines.
fn harmless(words: &str) -> String {
    let lines = words.split('\n');
    let lines = lines.map(|line| line.chars().map(visible).collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

fn shown_path(path: &Path) -> String {
    path.display().to_string().chars().map(visible).collect()
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

impl miette::Diagnostic for Diagnostic {
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(self.hint_text(), self.place.bytes.clone());
        Some(Box::new(std::iter::once(label)))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&*self.place.source)
    }
}

impl SourceCode for Source {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let inner = self.shown.read_span(span, before, after)?;
        Ok(Box::new(MietteSpanContents::new_named(
            shown_path(&self.file),
            inner.data(),
            *inner.span(),
            inner.line(),
            inner.column(),
            inner.line_count(),
        )))
    }
}

/// Every mistake of a scenario and its manifests, in the order of the files.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostics {
    file: PathBuf,
    all: Vec<Diagnostic>,
    more: usize,
}

impl Diagnostics {
    /// The mistakes; never empty.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.all.iter()
    }

    /// How many more there are.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Every mistake as [`Diagnostic::plain`] shows it, and how many there are.
    pub fn plain(&self) -> String {
        let text: String = self
            .all
            .iter()
            .map(|diagnostic| diagnostic.plain() + "\n")
            .collect();
        text + &format!("{self}\n")
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.all.len() + self.more;
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        write!(f, "{count} {noun} in {}", shown_path(&self.file))?;
        if self.more > 0 {
            write!(f, ", the first {} of them shown", self.all.len())?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

impl miette::Diagnostic for Diagnostics {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn miette::Diagnostic> + 'a>> {
        Some(Box::new(
            self.all
                .iter()
                .map(|diagnostic| diagnostic as &dyn miette::Diagnostic),
        ))
    }
}

/// More would bury the first, and each costs a walk through its file.
const SHOWN: usize = 50;

/// Where mistakes are gathered while reading goes on.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    all: RefCell<Vec<Diagnostic>>,
    more: Cell<usize>,
}

impl Gathered {
    /// Notes a mistake; the same one again (seen through another variant) is not noted twice.
    pub(crate) fn add(&self, diagnostic: Diagnostic) {
        let mut all = self.all.borrow_mut();
        if all.contains(&diagnostic) {
            return;
        }
        if all.len() < SHOWN {
            all.push(diagnostic);
        } else {
            self.more.set(self.more.get() + 1);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.borrow().is_empty()
    }

    /// Everything noted, as the mistakes of this scenario; `None` when there are none. The
    /// scenario's own come first, then those of its manifests, each file from top to bottom.
    pub(crate) fn into_diagnostics(self, file: &Path) -> Option<Diagnostics> {
        let mut all = self.all.into_inner();
        all.sort_by(|a, b| {
            let key = |c: &Diagnostic| (c.file() != file, c.file().to_owned(), c.place.bytes.start);
            key(a).cmp(&key(b))
        });
        let diagnostics = Diagnostics {
            file: file.to_owned(),
            all,
            more: self.more.get(),
        };
        (!diagnostics.all.is_empty()).then_some(diagnostics)
    }
}
