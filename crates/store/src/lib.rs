//! Bytes that survive: tables, publish, commit, journal and streams, and the disk they are proved on.

pub mod commit;
pub mod disk;
pub mod generation;
pub mod journal;
pub mod publish;
pub mod sim;
pub mod snapshots;
pub mod stream;
pub mod table;
pub mod turns;
