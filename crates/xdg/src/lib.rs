//! Files of freedesktop.org as their specifications define them: key files, locales, MIME types and patterns of names.
//!
//! Begin with [`KeyFile`](keyfile::KeyFile), [`Languages`](languages::Languages), which is the order of translated keys, and
//! [`MimeTypes`](mime_types::MimeTypes). [`mime`] tells a file's type by its name and contents. README.md has an example.

pub mod bus_service;
pub mod keyfile;
pub mod languages;
pub mod mime;
pub mod mime_types;
pub mod pattern;

/// The examples of README.md, tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
