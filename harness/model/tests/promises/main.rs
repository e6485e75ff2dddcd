//! Promises about addresses, balance, counters and recovery, and the part of the time that each is about.

#[path = "../judged/mod.rs"]
mod judged;
mod late;
mod queries;
mod requests;
mod rules;
mod shop;
mod watched;
