//! How results are shown: figures, grades, tables on a terminal, charts and pages.

pub mod advice;
pub mod chart;
pub mod escape;
pub mod figure;
pub mod grade;
pub mod page;
pub mod provenance;
pub mod samples;

pub use ::report::{paint, paragraph, table};
