//! Applications: desktop files, and which of them opens what.

pub mod associations;
pub mod desktop;
pub mod entries;
pub mod installed;
pub mod place;
