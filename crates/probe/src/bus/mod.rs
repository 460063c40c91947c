//! Traffic of D-Bus: the messages as they are on the wire, files of them, and recording without a burden on the bus.

pub mod capture;
mod pcap;
mod pcapng;
pub mod wire;
