//! OpenTelemetry: hangs as log events over OTLP/HTTP, each acknowledged once, and counts of them as metrics.
//!
//! The recorder's store is the spool: it is bounded, the oldest records go first, and what a person has erased is not sent.
//! Beside it a journal holds the identifiers of what a receiver has acknowledged.

pub mod client;
pub mod events;
pub mod metrics;
pub mod sent;
pub mod transfer;
