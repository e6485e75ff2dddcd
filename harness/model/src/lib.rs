//! The scenario language: read, check, plan, history and judge. Pure: no clock, no process, no
//! randomness that it is not given.

pub mod case;
pub mod event;
pub mod names;
pub mod verdict;
