//! The settings service and the buses, reached without GLib: a thread for each bus that is used, with a connection of
//! its own. No caller waits for a bus, apart from `Init` of a database that the service keeps.

mod call;
mod connection;
mod link;

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use settings::client::{ChangeCompletion, DatabaseSignal, Transport, TransportError};
use settings::profile::ProfileBus;
use wire::Endian;
use wire::write::Marshal;

use call::BusCall;
use link::{BusLink, LinkRequest};

/// The name of the settings service.
const SERVICE: &str = "ca.desrt.dconf";
/// The interface of its objects.
pub(crate) const WRITER: &str = "ca.desrt.dconf.Writer";
/// The longest message that a bus carries.
pub(crate) const LONGEST_MESSAGE: usize = 128 << 20;

/// Receives what arrives from the buses, on a thread of the bus and without a lock held.
pub(crate) trait BusEvents: Send + Sync {
    /// A database of the profile changed.
    fn signal(&self, signal: DatabaseSignal);
    /// A connection was made again; signals may have been lost meanwhile.
    fn reconnected(&self);
}

/// The two buses of a program.
#[derive(Debug)]
pub(crate) struct BusTransport {
    session: Arc<BusLink>,
    system: Arc<BusLink>,
}

impl BusTransport {
    /// Prepares both buses; nothing is connected before the first request.
    pub(crate) fn new(events: &Arc<dyn BusEvents>) -> BusTransport {
        BusTransport {
            session: BusLink::new(ProfileBus::Session, Arc::clone(events)),
            system: BusLink::new(ProfileBus::System, Arc::clone(events)),
        }
    }

    fn link(&self, bus: ProfileBus) -> &Arc<BusLink> {
        match bus {
            ProfileBus::Session => &self.session,
            ProfileBus::System => &self.system,
        }
    }

    /// Asks for the signals of an object that concern `path`; `done` is called once the bus delivers them, or not.
    pub(crate) fn add_match(
        &self,
        bus: ProfileBus,
        object_path: &str,
        path: &str,
        done: ChangeCompletion,
    ) {
        self.link(bus).push(LinkRequest::AddMatch { rule: match_rule(object_path, path), done });
    }

    /// Ends the delivery that [`BusTransport::add_match`] began.
    pub(crate) fn remove_match(&self, bus: ProfileBus, object_path: &str, path: &str) {
        self.link(bus).push(LinkRequest::RemoveMatch { rule: match_rule(object_path, path) });
    }
}

impl Drop for BusTransport {
    fn drop(&mut self) {
        self.session.push(LinkRequest::End);
        self.system.push(LinkRequest::End);
    }
}

impl Transport for BusTransport {
    fn change(&self, object_path: &str, body: Vec<u8>, done: ChangeCompletion) {
        let mut argument = Marshal::new(Endian::Little);
        argument.array(1, |out| out.raw(&body));
        let body = argument.bytes();
        if body.len() > LONGEST_MESSAGE / 2 {
            let text = "the changes are larger than a message may be".to_owned();
            return done(Err(TransportError { text }));
        }
        let call = BusCall::new(SERVICE, object_path, WRITER, "Change", "ay", body);
        self.session.push(LinkRequest::Call { call, done });
    }

    fn init(&self, object_path: &str) -> Result<(), TransportError> {
        let call = BusCall::new(SERVICE, object_path, WRITER, "Init", "", Vec::new());
        let (sender, receiver) = sync_channel(1);
        let done = move |result| {
            // The receiver waits below, in the same call.
            let _ = sender.send(result);
        };
        self.session.push(LinkRequest::Call { call, done: Box::new(done) });
        let lost = TransportError { text: "the connection ended".to_owned() };
        receiver.recv().unwrap_or(Err(lost)).map(|_| ())
    }
}

/// Returns the rule by which dconf's own library asks for signals.
fn match_rule(object_path: &str, path: &str) -> String {
    let [object_path, path] = [object_path, path].map(|text| text.replace('\'', r"'\''"));
    format!("type='signal',interface='{WRITER}',path='{object_path}',arg0path='{path}'")
}
