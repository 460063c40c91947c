//! All tests of the crate, in one program.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands"
)]

// The bodies of the fuzz targets name the crate so, too.
extern crate unjank_hangs as hangs;

mod clock;
mod connections;
mod disk_use;
mod fuzz_hangs;
mod kernel;
mod kernel_stack;
mod killed;
mod loops;
mod recorder;
mod store_crash;
mod store_real;
mod watching;
