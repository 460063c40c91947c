//! `bench`: our parts beside the programs that a user would run instead, in one run.

pub mod keys;
pub mod process;
pub mod random;
pub mod session;
