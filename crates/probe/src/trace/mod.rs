//! `trace`: from "it is slow" to the call, the file, the device and the code path to blame.
//!
//! A backend watches a program and tells a [`Recorder`](recorder::Recorder) what it saw; the recorder keeps totals of every call and the whole of the slow ones.
//! The [`Recording`](recording::Recording) that comes out is the same whichever backend made it; names, blame and pages are made of it afterwards.

pub mod ab;
pub mod backend;
pub mod call;
pub mod calls;
pub mod check;
pub mod compare;
pub mod export;
pub mod histogram;
pub mod import;
pub mod kernel;
pub mod known;
pub mod place;
pub mod recorder;
pub mod recording;
pub mod report;
pub mod stack;
pub mod watch;
