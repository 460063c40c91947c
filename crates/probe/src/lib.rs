//! What watches and measures: doctor, benchmarks and their reports.
