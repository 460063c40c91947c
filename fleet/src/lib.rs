//! What `unjank hangs` recorded, for engines that hold the records of many machines: Parquet, OpenTelemetry, OpenMetrics; and for viewers: pprof, Perfetto.

pub mod counters;
pub mod facts;
pub mod identity;
pub mod lake;
pub mod openmetrics;
pub mod otlp;
pub mod perfetto;
pub mod pprof;
pub mod tables;
pub mod viewer;
pub mod watched_store;
