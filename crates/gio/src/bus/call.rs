//! A call of the bus or of the settings service.

use wire::Endian;
use wire::write::Marshal;

/// A call that is to be made.
#[derive(Debug)]
pub(super) struct BusCall {
    pub(super) destination: &'static str,
    pub(super) object_path: String,
    pub(super) interface: &'static str,
    pub(super) member: &'static str,
    pub(super) signature: &'static str,
    pub(super) body: Vec<u8>,
    /// Whether it was made before, and the service ended before it answered.
    is_repeated: bool,
}

impl BusCall {
    /// Makes a call.
    pub(super) fn new(
        destination: &'static str,
        object_path: &str,
        interface: &'static str,
        member: &'static str,
        signature: &'static str,
        body: Vec<u8>,
    ) -> BusCall {
        let object_path = object_path.to_owned();
        BusCall { destination, object_path, interface, member, signature, body, is_repeated: false }
    }

    /// Makes a call of the bus about a match rule.
    pub(super) fn match_call(member: &'static str, rule: &str) -> BusCall {
        const BUS: &str = "org.freedesktop.DBus";
        let mut argument = Marshal::new(Endian::Little);
        argument.text(rule);
        BusCall::new(BUS, "/org/freedesktop/DBus", BUS, member, "s", argument.bytes())
    }

    /// Returns the same call to be made once more, unless it is that already.
    pub(super) fn repeated(mut self) -> Option<BusCall> {
        (!std::mem::replace(&mut self.is_repeated, true)).then_some(self)
    }
}
