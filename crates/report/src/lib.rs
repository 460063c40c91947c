//! How unjank speaks to people: text of others that is safe to print, and tables, sentences and tones on a terminal.

pub mod guard;
pub mod paint;
pub mod paragraph;
pub mod table;
pub mod text;
