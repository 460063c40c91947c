//! The engine of the settings on simulated and real disks, and its client.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

mod engine_support;

mod client_quiet;
mod engine_bounds;
mod engine_crash;
mod engine_history;
mod engine_locks;
mod engine_model;
mod engine_patched;
mod engine_preallocated;
mod engine_protocol;
mod engine_recovery;
mod engine_two_services;
mod history_damage;
