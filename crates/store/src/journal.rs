//! Append-only checksummed records.
