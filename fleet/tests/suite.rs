//! All tests of the exports, in one program.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands"
)]

mod fixture;
mod hostile;
mod openmetrics;
mod otlp;
mod otlp_metrics;
mod package;
mod parquet;
mod profile;
