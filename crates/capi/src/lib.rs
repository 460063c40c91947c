//! libunjank: what unjank has for programs, as functions of C.
//!
//! `include/unjank.h` says what each function does; this crate converts, calls and converts back.
//! Every function runs inside of `error::enter`, which turns an error into a negative number of `errno` and catches panics.
//! Handles are looked up before they are used (`handle`), and structures carry their size (`abi`).
#![expect(unsafe_code, reason = "C passes pointers, whose validity unjank.h demands of it")]

#[cfg(target_endian = "big")]
compile_error!("the library lends columns of little-endian numbers as they are");

mod abi;
mod bus;
mod environment;
mod error;
mod handle;
mod index;
mod listing;
mod model;
mod recents;
mod session;
mod settings;
mod watched;
