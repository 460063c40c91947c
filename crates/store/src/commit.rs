//! Group commit: the next batch gathers while one is made durable.
