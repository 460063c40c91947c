//! How results are shown: figures, grades, tables on a terminal, charts and pages.

pub mod figure;
pub mod grade;
pub mod paint;
pub mod paragraph;
pub mod provenance;
pub mod samples;
pub mod table;
