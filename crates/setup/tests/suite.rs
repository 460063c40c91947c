//! Parts are switched on and off, on simulated disks with every failure and on real ones.

mod before;
mod crash;
mod dependents;
mod fixture;
