//! libgiounjank: a GSettings backend, as a module of GIO.
//!
//! Values are read where the databases of dconf are mapped (`settings`), in the program itself; changes go to the
//! settings service on a connection and a thread of their own (`bus`). `keyfile` is the variant for sandboxes, which keeps
//! settings in the text file of GLib's own backend. `object` is what GIO calls: each function runs
//! inside of `boundary::enter`, which no panic leaves. `glib` declares what is used of GLib.
#![expect(unsafe_code, reason = "GLib passes pointers, whose validity its documentation demands")]

mod backend;
mod boundary;
mod bus;
mod cache;
mod emitter;
mod environment;
mod glib;
mod keyfile;
mod object;
mod thread;
mod value;
