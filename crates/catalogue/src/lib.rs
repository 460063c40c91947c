//! Plugins and applications: what they declare, and one mapped index that answers for all of them.
//!
//! Begin with [`Location`](index::refresh::Location), which opens the index of the user or makes it, and [`Index`](index::Index), which
//! has the plugins and the applications. [`Openers`](index::opener::Openers) says which application opens a MIME type, and
//! [`Constraint`](index::constraint::Constraint) chooses plugins by what they declare. Without an index,
//! [`Associations`](apps::associations::Associations) and [`metadata::read`](plugins::metadata::read) look at the files themselves.
//!
//! README.md has an example.

pub mod apps;
pub mod index;
pub mod plugins;
mod unread;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
