//! Bytes that survive: tables, publish, commit and journal, and the disk they are proved on.

pub mod commit;
pub mod disk;
pub mod generation;
pub mod journal;
pub mod publish;
pub mod sim;
pub mod snapshots;
pub mod table;
