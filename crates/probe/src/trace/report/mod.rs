//! A report: a recording with names, small enough to be mailed, and the same for screen, page and program.

mod advice;
mod arguments;
mod build;
pub mod data;
pub mod names;
pub mod page;
mod paths;
pub mod schema;
pub mod spelling;
mod stalls;
#[cfg(test)]
pub(crate) mod tests;
pub mod text;
pub(crate) mod verdict;
pub mod view;

pub use self::build::{Options, build};
pub use self::schema::{Report, SCHEMA};
