//! The tests of the crate, one program.

mod kernel;
mod properties;
