//! A program that is given something to read.

use std::{
    io::{self, Write},
    process::{Child, Output},
    thread,
};

/// What the program comes to that reads this on its standard input, which is piped.
pub(crate) fn fed(mut child: Child, input: &str) -> io::Result<Output> {
    let stdin = child.stdin.take();
    thread::scope(|scope| {
        // What ends before it has read everything says why itself.
        scope.spawn(|| stdin.map(|mut it| it.write_all(input.as_bytes())));
        child.wait_with_output()
    })
}
