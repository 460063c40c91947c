//! Applications: desktop files, and which of them opens what.

pub mod associations;
pub mod choose;
pub mod desktop;
pub mod entries;
pub mod installed;
pub mod place;
