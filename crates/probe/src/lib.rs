//! What watches and measures: doctor, benchmarks and their reports.

pub mod doctor;
pub mod report;
