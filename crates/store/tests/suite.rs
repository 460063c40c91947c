//! Journals, publishing and snapshots, on simulated disks with every failure and on real ones.
//!
//! One program: tests that wait do so beside each other, and there is one to link.

mod crash_journal;
mod crash_preallocated;
mod crash_publish;
mod crash_snapshots;
mod generation_dconf;
mod journal_bytes;
mod journal_follow;
mod journal_format;
mod journal_real;
mod preallocated_real;
mod publish_real;
mod shared_journal;
