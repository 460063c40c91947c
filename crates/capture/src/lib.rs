//! Traffic of D-Bus: the messages as they are on the wire, files of them, and recording without a burden on the bus.
//!
//! Begin with [`Capture`](capture::Capture), a file that is read, [`Model`](model::Model), in which calls have their answers, and
//! [`Filter`](filter::Filter), which chooses messages. [`record`] makes a file, [`stats`], [`diff`] and [`diagram`] are made of one.
//! README.md has an example.

pub mod capture;
pub mod diagram;
pub mod diff;
mod event;
pub mod expect;
pub mod filter;
pub mod introspection;
pub mod lines;
pub mod live;
pub mod load_generator;
mod log;
pub mod merge;
pub mod model;
mod pcap;
mod pcapng;
pub(crate) mod readable;
pub mod record;
pub mod stats;
pub mod why;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
