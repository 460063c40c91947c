//! The library as programs in C and C++ get it: its header, its symbols, its examples, and a program that uses all of it.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail where something is not there, and say what they skip"
)]

mod built;
mod document;
mod exports;
mod gir;
mod kio;
mod programs;
mod python;
mod sessions;
mod sources;
mod toolkits;
