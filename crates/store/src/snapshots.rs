//! The last good generations of a published file.
