//! The `unjank` command.

fn main() {}
