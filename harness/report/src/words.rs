//! The words for what was found, in lines. Terminal and JUnit only lay them out.

mod story;
