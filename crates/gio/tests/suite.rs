//! GSettings in programs, through the module, beside dconf's own one: in sessions with the real bus, the real `dconf`
//! and `gsettings`, and our service or dconf's.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod programs;
mod service;
mod session;
mod switched_on;
