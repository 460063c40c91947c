//! How unjank speaks to people: text of others that is safe to print.

pub mod text;
