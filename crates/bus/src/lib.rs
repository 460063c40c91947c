//! The D-Bus contracts of unjank, both ends; the only crate that names zbus.
//!
//! Begin with [`BusTransport`](client::BusTransport), through which a program changes settings,
//! [`BlockingClient`](client::blocking::BlockingClient), which calls the services, and [`Server`](server::Server), which is one.
//! README.md has an example.

mod bounded;
pub mod client;
pub mod errors;
mod raw;
pub mod request;
pub mod server;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
