//! A service for host commands on a private bus, and what is asked of it.

pub mod cases;
pub mod raw;
pub mod wire;
