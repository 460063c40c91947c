//! Nonsense on the bus: the daemon must answer every call and stay up.

use crate::fixture;

use bus::client::CallArgument;
use fixture::random::Random;
use fixture::{Bus, NAME, OURS, SET_A_B, USER, in_time};

/// Nonsense of every kind.
trait Nonsense {
    fn blob(&mut self) -> Vec<u8>;
    fn argument(&mut self, depth: usize) -> CallArgument;
}

impl Nonsense for Random {
    /// Bytes that look a little like a changeset, or not at all.
    fn blob(&mut self) -> Vec<u8> {
        let mut blob = match self.next(4) {
            0 => Vec::new(),
            1 => vec![0; self.next(100)],
            _ => SET_A_B.repeat(1 + self.next(4)),
        };
        for _ in 0..self.next(6) {
            if blob.is_empty() {
                break;
            }
            let (at, byte) = (self.next(blob.len()), self.next(256).to_le_bytes()[0]);
            match self.next(3) {
                0 => blob[at] = byte,
                1 => blob.truncate(at),
                _ => blob.insert(at, byte),
            }
        }
        blob
    }

    fn argument(&mut self, depth: usize) -> CallArgument {
        match self.next(if depth == 0 { 5 } else { 6 }) {
            0 => CallArgument::Text(self.pick(&["", "x", "ca.desrt.dconf.Writer"]).to_owned()),
            1 => CallArgument::Texts(vec!["x".to_owned(); self.next(3)]),
            2 => CallArgument::Bytes(self.blob()),
            3 => CallArgument::Number(-1),
            4 => CallArgument::Truth(true),
            _ => CallArgument::Variant(Box::new(self.argument(depth - 1))),
        }
    }
}

const PATHS: [&str; 12] = [
    "/",
    "/ca/desrt/dconf",
    "/ca/desrt/dconf/Writer",
    "/ca/desrt/dconf/Writer/user",
    "/ca/desrt/dconf/Writer/user/x",
    "/ca/desrt/dconf/Writer/a_very_long_name_that_goes_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on_and_on",
    "/ca/desrt/dconf/shm/x",
    "/ca/desrt/dconf/shm",
    "/ca/desrt/dconf/keyfile/x",
    "/ca/desrt/dconf/keyfile",
    "/ca/desrt/dconf/journal/x",
    "/ca/desrt/dconf/journal",
];
const INTERFACES: [&str; 7] = [
    "",
    "ca.desrt.dconf.Writer",
    "ca.desrt.dconf.ServiceInfo",
    "org.freedesktop.DBus.Peer",
    "org.freedesktop.DBus.Properties",
    "org.freedesktop.DBus.Introspectable",
    "a.b",
];
const METHODS: [&str; 10] =
    ["Change", "Init", "Blame", "Ping", "Get", "GetAll", "Set", "Introspect", "GetMachineId", "X"];

#[test]
fn nonsense_is_answered_and_survived() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let mut command = bus.command(OURS);
        command.env("DCONF_BLAME", "");
        command.args(["--log-level", "error"]);
        let service = bus.serve_by(command);
        let client = bus.client();
        let mut random = Random::begin();
        for _ in 0..1500 {
            let path = random.pick(&PATHS);
            let interface = Some(random.pick(&INTERFACES)).filter(|name| !name.is_empty());
            let method = random.pick(&METHODS);
            let arguments = (0..random.next(4)).map(|_| random.argument(3)).collect();
            let outcome = client.run(async |client| {
                client.try_call(NAME, path, interface, method, arguments).await
            });
            outcome.unwrap();
        }
        for _ in 0..1000 {
            // A value that is not in normal form is refused, the rest is left out.
            let call = vec![CallArgument::Bytes(random.blob())];
            let writer = Some("ca.desrt.dconf.Writer");
            let outcome = client
                .run(async |client| client.try_call(NAME, USER, writer, "Change", call).await);
            outcome.unwrap();
        }
        // Still the same process, and still at work.
        assert_eq!(client.pid_of(NAME).unwrap(), service.pid());
        client.change(USER, SET_A_B).unwrap();
        let (status, text, _) = service.end(rustix::process::Signal::TERM);
        assert!(status.success() && text.is_empty(), "{text}");
    });
}

#[test]
fn the_longest_change_that_a_bus_carries_is_answered() {
    in_time(|| {
        let Some(bus) = Bus::start() else { return };
        let service = bus.serve(OURS, &[]);
        let client = bus.client();
        client.change(USER, &vec![0xff; 64 << 20]).unwrap();
        // All offsets are zero: by GVariant's rules a great many empty entries.
        client.change(USER, &vec![0; 1 << 20]).unwrap();
        assert_eq!(client.pid_of(NAME).unwrap(), service.pid());
        assert!(!bus.user_database().exists(), "nonsense was written");
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid())).unwrap();
        let resident = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        let resident: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(resident < 20 << 10, "{resident} KiB are kept after a long change");
    });
}
