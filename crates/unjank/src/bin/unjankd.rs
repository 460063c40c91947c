//! The per-user daemon.

fn main() {}
