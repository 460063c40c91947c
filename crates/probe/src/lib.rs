//! What watches and measures: doctor, benchmarks and their reports.

pub mod bench;
pub mod bus;
pub mod doctor;
pub mod model;
pub mod place;
pub mod report;
pub mod scratch;
pub mod trace;
