//! Recent documents and sandboxed programs: through a proxy as Flatpak has one, and in a root of their own. What they add
//! takes nothing from the user and from each other.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "the tests are other programs; what cannot be set up fails"
)]

use crate::fixture;
use crate::host_service;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use fixture::{Bus, OURS, Service, has, in_time, sandbox, skip};
use host_service::wire::{Answer, Bytes, Wire};
use serde_json::Value as Json;

const UNJANK: &str = env!("CARGO_BIN_EXE_unjank");
const NAME: &str = "org.unjank.Session1";
const PATH: &str = "/org/unjank/Recent1";
const INTERFACE: &str = "org.unjank.Recent1";
/// Longer than anything takes, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(50);
/// How long others may be held up, on a machine that has much else to do.
const HELD_UP: Duration = Duration::from_secs(3);
/// What additions beyond a share get.
const LIMITS_EXCEEDED: &str = "org.freedesktop.DBus.Error.LimitsExceeded";
const INVALID_ARGS: &str = "org.freedesktop.DBus.Error.InvalidArgs";

/// A session with the daemon.
struct Session {
    bus: Bus,
    _daemon: Service,
}

impl Session {
    /// Starts one; the user's rules are there from the start.
    fn start(rules: &str) -> Option<Session> {
        if !has(&["xdg-dbus-proxy", "bwrap", "gdbus"]) {
            return None;
        }
        let Some(bus) = Bus::start() else {
            skip("no bus");
            return None;
        };
        let file = bus.dir().join("config/unjank/recent.rules");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, rules).unwrap();
        let mut command = bus.command(OURS);
        command.args(["--names", "session", "--idle-exit", "0"]).stderr(Stdio::piped());
        let daemon = Service::from(command.spawn().unwrap());
        let start = Instant::now();
        while Wire::connect(bus.address())
            .send(NAME, PATH, INTERFACE, "Policy", "", &[], &[])
            .unwrap()
            .is_err()
        {
            assert!(start.elapsed() < PATIENCE, "the daemon does not take the name");
        }
        Some(Session { bus, _daemon: daemon })
    }

    fn unjank(&self, arguments: &[&str]) -> String {
        let output = self.bus.command(UNJANK).arg("recent").args(arguments).output().unwrap();
        assert!(output.status.code() != Some(2), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn uris(&self) -> BTreeSet<String> {
        self.unjank(&["list", "--uris"]).lines().map(str::to_owned).collect()
    }

    /// Returns an entry without its times.
    fn entry(&self, uri: &str) -> Json {
        let mut list: Json = serde_json::from_str(&self.unjank(&["list", "--json"])).unwrap();
        let documents = list["documents"].as_array_mut().unwrap();
        let mut entry = documents.iter().find(|entry| entry["uri"] == uri).unwrap().clone();
        ["added", "modified", "visited"].iter().for_each(|time| entry[*time] = Json::Null);
        entry
    }

    /// A proxy as sandboxes have one, which lets everything of ours through.
    fn proxy(&self) -> Proxy {
        let socket = self.bus.dir().join("proxy");
        let mut command = self.bus.command("xdg-dbus-proxy");
        command.arg(self.bus.address()).arg(&socket);
        let child = command.args(["--filter", &format!("--talk={NAME}")]).spawn().unwrap();
        let start = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < PATIENCE, "the proxy does not listen");
        }
        Proxy { child, address: format!("unix:path={}", socket.display()) }
    }

    /// Adds a document from within the sandbox of `id`; `None` where there is no sandbox.
    fn add_within(&self, id: &str, uri: &str, options: &str) -> Option<String> {
        let method = format!("{INTERFACE}.Add");
        let words = ["gdbus", "call", "--session", "-d", NAME, "-o", PATH, "-m", &method, uri];
        let words = [&words[..], &[options]].concat();
        let output = sandbox::run(&self.bus, id, Some(id), &words)?;
        Some(String::from_utf8(output.stderr).unwrap())
    }

    fn xbel(&self) -> std::path::PathBuf {
        self.bus.dir().join("data/recently-used.xbel")
    }

    fn journal(&self) -> std::path::PathBuf {
        self.bus.dir().join("state/unjank/recents/journal")
    }
}

struct Proxy {
    child: Child,
    address: String,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The arguments of `Add`; each option is a string, but of the groups there may be many.
fn arguments(uri: &str, options: &[(&str, &str)], groups: &[String]) -> Vec<u8> {
    let mut body = Bytes::default();
    body.text(uri);
    body.array(8, |body| {
        for (name, value) in options {
            body.align(8);
            body.text(name);
            body.0.extend(b"\x01s\0");
            body.text(value);
        }
        if !groups.is_empty() {
            body.align(8);
            body.text("groups");
            body.0.extend(b"\x02as\0");
            body.array(4, |body| groups.iter().for_each(|group| body.text(group)));
        }
    });
    body.0
}

fn add(wire: &mut Wire, body: &[u8]) -> Answer {
    wire.send(NAME, PATH, INTERFACE, "Add", "sa{sv}", body, &[]).unwrap()
}

fn len_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

#[test]
fn a_flood_from_a_sandbox_takes_no_place_of_the_users_documents_and_holds_up_nobody() {
    in_time(|| {
        let Some(session) = Session::start("keep entries 500\n") else { return };
        let mine: Vec<String> = (0..500).map(|number| format!("/srv/mine/{number}")).collect();
        let mut words = vec!["add", "--app", "org.kde.kate"];
        words.extend(mine.iter().map(String::as_str));
        session.unjank(&words);
        let mine = session.uris();
        assert_eq!(mine.len(), 500);
        let proxy = session.proxy();
        let mut evil = Wire::connect(&proxy.address);
        let mut other = Wire::connect(session.bus.address());
        let mut slowest = Duration::ZERO;
        let long = "x".repeat(8000);
        for number in 0..5200 {
            let uri = format!("file:///srv/evil/{number}/{long}");
            let body = arguments(&uri, &[("mime", "text/plain"), ("exec", "evil %u")], &[]);
            evil.write(NAME, PATH, INTERFACE, "Add", "sa{sv}", &body, &[]).unwrap();
            if number % 400 == 0 {
                let start = Instant::now();
                other.send(NAME, PATH, INTERFACE, "Policy", "", &[], &[]).unwrap().unwrap();
                slowest = slowest.max(start.elapsed());
            }
        }
        assert!(slowest < HELD_UP, "others waited {slowest:?}");
        let answers: Vec<Answer> = (0..5200).map(|_| evil.answer().unwrap()).collect();
        let refused = Err(LIMITS_EXCEEDED.to_owned());
        let refused = answers.iter().filter(|answer| **answer == refused).count();
        assert!(refused > 4000, "only {refused} were refused");
        session.unjank(&["sync"]);
        let now = session.uris();
        assert!(mine.is_subset(&now), "{} are gone", mine.difference(&now).count());
        let theirs = now.len() - mine.len();
        assert!((1..=100).contains(&theirs), "{theirs} of the sandbox's");
        assert!(len_of(&session.xbel()) < 2 << 20, "{} bytes", len_of(&session.xbel()));
        assert!(len_of(&session.journal()) < 4 << 20, "{} bytes", len_of(&session.journal()));
        // What it lost stays away when others write the list again.
        session.unjank(&["add", "/srv/one-more"]);
        session.unjank(&["sync"]);
        assert!(session.uris().len() <= 600);
    });
}

#[test]
fn fields_that_the_list_cannot_hold_are_refused_and_named() {
    in_time(|| {
        let Some(session) = Session::start("") else { return };
        let proxy = session.proxy();
        let (long, text) = ("x".repeat(70_000), |text: &str| text.to_owned());
        let uri = "file:///srv/a";
        for address in [proxy.address.as_str(), session.bus.address()] {
            let mut wire = Wire::connect(address);
            let mut bodies = vec![
                arguments("file:///\u{1}", &[("mime", "\u{1}")], &[]),
                arguments(&format!("file:///{long}"), &[], &[]),
                arguments(uri, &[("mime", &long)], &[]),
                arguments(uri, &[], std::slice::from_ref(&long)),
                arguments(uri, &[], &vec![text("g"); 33]),
                arguments(uri, &[("mime", &"x".repeat(2 << 20))], &[]),
                arguments(uri, &[("mime", "")], &[]),
                arguments(uri, &[], &[text("\u{2}")]),
                arguments(uri, &[], &[text("good"), text("a\u{fffe}b")]),
            ];
            if address == session.bus.address() {
                for name in ["application", "exec"] {
                    let bad = [long.as_str(), "\u{1b}[2J", "\u{ffff}"];
                    bodies.extend(bad.map(|bad| arguments(uri, &[(name, bad)], &[])));
                }
            }
            for (number, body) in bodies.iter().enumerate() {
                assert_eq!(add(&mut wire, body), Err(INVALID_ARGS.to_owned()), "{number}");
            }
            let whole = add(&mut wire, &arguments("file:///srv/good", &[("mime", "a/b")], &[]));
            assert_eq!(whole, Ok(vec![0; 5]));
        }
        session.unjank(&["sync"]);
        assert_eq!(session.uris(), BTreeSet::from(["file:///srv/good".to_owned()]));
        // Nothing is left to be done.
        let before = std::fs::read(session.xbel()).unwrap();
        session.unjank(&["sync"]);
        assert!(std::fs::read(session.xbel()).unwrap() == before);
    });
}

#[test]
fn what_a_sandbox_says_of_others_documents_changes_nothing_of_them() {
    in_time(|| {
        let Some(session) = Session::start("") else { return };
        session.unjank(&["add", "--app", "org.kde.kate", "--group", "Mine", "/srv/mine.txt"]);
        session.unjank(&["sync"]);
        let before = session.entry("file:///srv/mine.txt");
        let hostile = "{'mime': <'x/evil'>, 'exec': <'sh -c evil'>, 'groups': <['Evil']>, \
             'private': <true>, 'application': <'org.kde.kate'>}";
        for uri in ["file:///srv/mine.txt", "file:///srv/theirs.txt"] {
            let Some(said) = session.add_within("org.evil.App", uri, hostile) else { return };
            assert_eq!(said, "('',)\n");
        }
        session.unjank(&["sync"]);
        let mut after = session.entry("file:///srv/mine.txt");
        let by: Vec<Json> = after["applications"].as_array().unwrap().clone();
        after["applications"] = Json::Array(by[..1].to_vec());
        assert_eq!(after, before);
        let theirs = session.entry("file:///srv/theirs.txt");
        for program in by[1..].iter().chain(theirs["applications"].as_array().unwrap()) {
            assert_eq!(program["name"], "org.evil.App");
            // Outside of its sandbox nothing of its own runs.
            assert_eq!(program["exec"], "flatpak run --file-forwarding org.evil.App @@u %u @@");
        }
        assert_eq!((by.len(), theirs["mime"].as_str()), (2, Some("x/evil")));
        let text = std::fs::read_to_string(session.xbel()).unwrap();
        assert!(!text.contains("sh -c evil"), "{text}");
    });
}

#[test]
fn a_sandbox_learns_no_rule() {
    in_time(|| {
        let rules = "deny path /srv/Secret-Project/**\ndeny type application/x-secret\n";
        let Some(session) = Session::start(rules) else { return };
        let proxy = session.proxy();
        let mut wire = Wire::connect(&proxy.address);
        let mut answers = BTreeSet::new();
        for (uri, mime) in [
            ("file:///srv/Secret-Project/a", "text/plain"),
            ("file:///srv/a", "application/x-secret"),
            ("file:///srv/.hidden/a", "text/plain"),
            ("file:///tmp/a", "text/plain"),
        ] {
            let body = add(&mut wire, &arguments(uri, &[("mime", mime)], &[])).unwrap();
            answers.insert(String::from_utf8_lossy(&body[4..]).into_owned());
        }
        session.unjank(&["private", "on"]);
        let body = add(&mut wire, &arguments("file:///srv/b", &[], &[])).unwrap();
        answers.insert(String::from_utf8_lossy(&body[4..]).into_owned());
        assert_eq!(answers, BTreeSet::from(["it is not remembered\0".to_owned()]));
        for method in ["Policy", "List", "Forget", "Private"] {
            let (signature, body) = match method {
                "List" => ("a{sv}", arguments("", &[], &[])[8..].to_vec()),
                "Forget" => ("as", vec![0; 4]),
                "Private" => ("bt", vec![0; 16]),
                _ => ("", Vec::new()),
            };
            let answer = wire.send(NAME, PATH, INTERFACE, method, signature, &body, &[]).unwrap();
            let denied = "org.freedesktop.DBus.Error.AccessDenied".to_owned();
            assert_eq!(answer, Err(denied), "{method}");
        }
        assert!(session.uris().is_empty());
    });
}
