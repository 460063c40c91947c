//! `trace`: from "it is slow" to the call, the file, the device and the code path to blame.
//!
//! Begin with [`TraceOptions`](backend::TraceOptions), the options of a recording, and [`backend::run`], which returns a
//! [`Recording`](recording::Recording). [`report::build()`] makes a report of it, with the names that a
//! [`Symbolizer`](symbolizer::Symbolizer) finds. README.md has an example.
//!
//! A backend observes a program and passes what it sees to a [`TraceRecorder`](recorder::TraceRecorder), which keeps totals of every call and all details of the slow ones.
//! The resulting [`Recording`](recording::Recording) does not depend on the backend; symbols, blame and pages are derived from it afterwards.

pub mod backend;
pub mod call;
pub mod export;
pub mod kernel_work;
pub mod mark;
pub mod place;
pub mod recorder;
pub mod recording;
pub mod report;
pub mod stack;
pub mod symbolizer;
pub mod timeline;
pub mod watch;

pub use kerneltrace::histogram;
pub use sys::{syscall, syscall_set};

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
