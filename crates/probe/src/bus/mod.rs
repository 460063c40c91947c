//! Traffic of D-Bus: the messages as they are on the wire, files of them, and recording without a burden on the bus.

pub mod capture;
pub mod filter;
pub mod model;
mod pairs;
mod pcap;
mod pcapng;
pub mod stats;
pub mod wire;
