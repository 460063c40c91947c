//! What `unjank hangs` recorded, for engines that hold the records of many machines: Parquet, OpenTelemetry, OpenMetrics.

pub mod facts;
pub mod identity;
pub mod lake;
pub mod openmetrics;
pub mod otlp;
pub mod tables;
