//! Traffic of D-Bus: the messages as they are on the wire, files of them, and recording without a burden on the bus.

pub mod capture;
pub mod diagram;
pub mod diff;
pub mod expect;
pub mod filter;
pub mod introspection;
pub mod lines;
pub mod live;
mod log;
pub mod merged;
pub mod model;
mod pairs;
mod pcap;
mod pcapng;
pub mod readable;
pub mod record;
pub mod stats;
pub mod traffic;
pub mod why;
pub mod wire;
