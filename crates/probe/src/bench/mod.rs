//! `bench`: our parts beside the programs that a user would run instead, in one run.

pub mod bus;
pub mod cold;
pub mod host;
pub mod json;
pub mod keys;
pub mod lab;
pub mod launch;
pub mod listing;
pub mod page;
pub mod plugins;
pub mod process;
pub mod random;
pub mod recents;
pub mod row;
pub mod run;
pub mod session;
pub mod settings;
pub mod text;
pub mod trace;
