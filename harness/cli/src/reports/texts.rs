//! What a run comes to in words: its file, and what is printed. What stands above its cases is known after the last of them; until then
//! what is said of them waits in files without a name.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Seek, Write},
    path::Path,
};

use chainbreak_report::{
    Run, WholeFile,
    summary::Summary,
    term::{self, Colour, Overview, Terminal},
    text_file,
};

use super::{WIDTH, terminal};

/// How the file is written.
const PLAIN: Terminal = Terminal {
    width: WIDTH,
    colour: Colour::Off,
};

/// What is said of cases.
pub(super) struct Texts {
    written: File,
    /// Nothing where nothing is printed.
    printed: Option<File>,
}

impl Texts {
    /// Of none yet.
    pub(super) fn begin(folder: &Path, print: bool) -> io::Result<Self> {
        let nameless = || tempfile::tempfile_in(folder);
        Ok(Self {
            written: nameless()?,
            printed: print.then(nameless).transpose()?,
        })
    }

    /// Of the next case.
    pub(super) fn case(&mut self, summary: &Summary) -> io::Result<()> {
        let text = text_file::case(summary, PLAIN).unwrap_or_default();
        self.written.write_all(text.as_bytes())?;
        if let Some(printed) = &mut self.printed
            && let Some(detail) = term::detail(summary, terminal())
        {
            write!(printed, "\n{detail}")?;
        }
        Ok(())
    }

    /// Writes the file.
    pub(super) fn write(
        &mut self,
        run: &Run,
        overview: &Overview,
        path: &Path,
    ) -> anyhow::Result<()> {
        let mut file = WholeFile::begin(path)?;
        for part in text_file::above(run, overview, PLAIN) {
            file.append(part.as_bytes())?;
        }
        self.written.rewind()?;
        file.append_file(&mut self.written)?;
        file.append(text_file::below(overview, PLAIN).as_bytes())?;
        file.finish()?;
        Ok(())
    }

    /// Prints, where that is wanted; the paths are those of the files that were written.
    pub(super) fn print(self, overview: &Overview, paths: &[String]) -> anyhow::Result<()> {
        let Some(mut printed) = self.printed else {
            return Ok(());
        };
        for line in overview.above(terminal()) {
            crate::tell(&line)?;
        }
        printed.rewind()?;
        for line in BufReader::new(printed).lines() {
            crate::tell(&(line? + "\n"))?;
        }
        crate::tell(&format!("\n{}", overview.below(paths, terminal())))
    }
}
