//! What is left out of all that was attached.

use std::{
    cell::{Cell, RefCell},
    path::Path,
};

use chainbreak_report::text::count;

/// So many are named, and fewer where there are more: a support bundle has thousands of them.
const NAMED: usize = 20;
const NAMED_OF_MORE: usize = 5;

/// Files and links that are left out, and why. It is told in the end, also where something else fails.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// As far as they may be named.
    named: RefCell<Vec<String>>,
    all: Cell<usize>,
}

impl LeftOut {
    pub(super) fn add(&self, file: &Path, why: &str) {
        self.all.set(self.all.get() + 1);
        if self.all.get() <= NAMED {
            let named = format!("{}: {why}", file.display());
            self.named.borrow_mut().push(named);
        }
    }

    /// Says it once.
    pub(super) fn tell(&self) {
        let all = self.all.take();
        let most = if all > NAMED { NAMED_OF_MORE } else { NAMED };
        let named = self.named.take();
        named.iter().take(most).for_each(|it| crate::note(it));
        if all > NAMED {
            let more = count(all - most, "other file");
            crate::note(&format!("{more}: left out likewise"));
        }
    }
}

impl Drop for LeftOut {
    fn drop(&mut self) {
        self.tell();
    }
}
