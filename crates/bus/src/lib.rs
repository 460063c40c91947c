//! The D-Bus contracts of unjank, both ends; the only crate that names zbus.
