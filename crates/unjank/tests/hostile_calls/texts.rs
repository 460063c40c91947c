//! Text that is none, and text that the files of others cannot hold, in every method of settings and recent documents: the bus
//! ends the connection as its specification says, or the service says why it refuses, and nothing is stored.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::fixture::{self, Bus, OURS, in_time, set};
use super::host_service::wire::Bytes;
use super::interfaces::{self, Method};
use super::values::types;
use super::wire::{ERROR, Message, RETURN, Reply, Target, Wire};

const SESSION: &str = "org.unjank.Session1";
const RECENT: &str = "/org/unjank/Recent1";
const INTERFACE: &str = "org.unjank.Recent1";
const INVALID_ARGS: &str = "org.freedesktop.DBus.Error.InvalidArgs";
const PATIENCE: Duration = Duration::from_secs(50);

/// Bytes that are no UTF-8: a byte alone, `/` and zero in two bytes, a surrogate, what lies beyond Unicode, a letter that is
/// cut off.
const NO_TEXT: [&[u8]; 7] = [
    b"a\xff",
    b"\xc0\xaf",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"a\xe2\x82",
];
/// Characters that XML 1.0 does not have.
const NOT_IN_XML: [&str; 6] = ["\u{1}", "\u{8}", "\u{1b}[2J", "\u{1f}", "a\u{fffe}", "\u{ffff}b"];

/// The services of settings and recent documents, on a bus of their own.
struct Services {
    bus: Bus,
    service: fixture::Service,
}

impl Services {
    fn start() -> Option<Services> {
        let bus = Bus::start()?;
        let mut command = bus.command(OURS);
        command.args(["--names", "dconf,session", "--log-level", "error", "--idle-exit", "0"]);
        command.env("DCONF_BLAME", "");
        let service = bus.serve_by(command);
        for name in [fixture::NAME, SESSION] {
            bus.client().wait_for_owner(name).unwrap();
        }
        Some(Services { bus, service })
    }

    fn connect(&self) -> Wire {
        Wire::connect(self.bus.address(), PATIENCE).unwrap()
    }

    fn methods(&self) -> Vec<Method> {
        let names = [fixture::NAME, SESSION];
        let mut all: Vec<Method> = names
            .into_iter()
            .flat_map(|name| interfaces::methods(self.bus.address(), name))
            .collect();
        // One of each kind of database, also of those that are not there yet.
        for kind in ["Writer", "shm", "keyfile", "journal"] {
            let path = format!("/ca/desrt/dconf/{kind}/text");
            for (member, signature) in [("Change", "ay"), ("Init", "")] {
                let target = Target::new(fixture::NAME, &path, "ca.desrt.dconf.Writer", member);
                all.push(Method { target, signature: signature.to_owned() });
            }
        }
        all
    }

    /// Fails if anything of what was refused is in a file.
    fn assert_nothing_is_stored(&self, dir: &Path) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                self.assert_nothing_is_stored(&path);
            } else if kind.is_file() {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let found = bytes.windows(MARK.len()).any(|part| part == MARK.as_bytes());
                assert!(!found, "{} holds what was refused", path.display());
            }
        }
    }

    /// Both services answer, and end without a word.
    fn end(self) {
        let mut wire = self.connect();
        for name in [fixture::NAME, SESSION] {
            let ping = Target::new(name, RECENT, "org.freedesktop.DBus.Peer", "Ping");
            assert_eq!(wire.call(&ping, "", &[]).unwrap().kind, RETURN, "{name}");
        }
        self.assert_nothing_is_stored(self.bus.dir());
        let (status, text, _) = self.service.end(rustix::process::Signal::TERM);
        assert!(status.success() && text.is_empty(), "{status:?} {text}");
    }
}

/// What is in every text that is to be refused.
const MARK: &str = "unmistakable";

/// Writes a value of this type whose texts all are this one.
fn write(body: &mut Bytes, ty: &str, text: &[u8]) {
    match ty.as_bytes()[0] {
        b's' => {
            body.bytes(text);
            body.0.push(0);
        }
        b'b' | b'u' => body.number(0),
        b't' => {
            body.align(8);
            body.0.extend([0; 8]);
        }
        b'v' => {
            body.0.extend(*b"\x01s\0");
            write(body, "s", text);
        }
        b'a' if ty == "ay" => body.bytes(text),
        b'a' => {
            let element = &ty[1..];
            let alignment = if element.starts_with(['{', '(']) { 8 } else { 4 };
            body.array(alignment, |body| write(body, element, text));
        }
        _ => {
            body.align(8);
            types(&ty[1..ty.len() - 1]).into_iter().for_each(|ty| write(body, ty, text));
        }
    }
}

/// What came of a call: an answer, or the end of the connection.
fn outcome(wire: &mut Wire, method: &Method, body: &[u8]) -> io::Result<Message> {
    wire.send(&method.target, &method.signature, body, &[], Reply::Wanted)?;
    loop {
        let message = wire.receive()?;
        if matches!(message.kind, RETURN | ERROR) {
            return Ok(message);
        }
    }
}

#[test]
fn a_message_with_text_that_is_not_utf8_ends_its_connection_and_reaches_nobody() {
    in_time(|| {
        let Some(services) = Services::start() else { return };
        let methods = services.methods();
        let with_text = methods.iter().filter(|method| method.signature.contains('s'));
        let mut tried = 0;
        for method in with_text {
            for bad in NO_TEXT {
                let mut body = Bytes::default();
                let text = [MARK.as_bytes(), bad].concat();
                types(&method.signature).into_iter().for_each(|ty| write(&mut body, ty, &text));
                let ended = outcome(&mut services.connect(), method, &body.0);
                let ended = ended.map(|message| (message.kind, message.error, message.body));
                assert!(
                    ended.as_ref().is_err_and(|error| !is_late(error)),
                    "{method:?} {bad:?}: {ended:?}"
                );
                tried += 1;
            }
        }
        assert!(tried >= 5 * NO_TEXT.len(), "{tried}");
        services.end();
    });
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[test]
fn a_change_whose_text_or_value_is_not_in_normal_form_is_refused_with_the_reason() {
    in_time(|| {
        let Some(services) = Services::start() else { return };
        let good = set("/text/key", MARK);
        let value_at = good.windows(MARK.len()).position(|part| part == MARK.as_bytes()).unwrap();
        let mut refused: Vec<(Vec<u8>, &str)> = Vec::new();
        for bad in NO_TEXT {
            let mut value = good.clone();
            let end = value_at + MARK.len();
            value[end - bad.len()..end].copy_from_slice(bad);
            refused.push((value, "the value of \"/text/key\" is not in normal form"));
            let mut path = set("/unmistakable/path", MARK);
            path[18 - bad.len()..18].copy_from_slice(bad);
            refused.push((path, "a path is no text"));
        }
        // A truth value that is neither, a text that holds a zero, one without its end.
        let truth = [&fixture::SET_A_B[..8], b"\x02\0b\0\x05\x0d"].concat();
        refused.push((truth, "the value of \"/a/b\" is not in normal form"));
        for at in [value_at, value_at + MARK.len()] {
            let mut bytes = good.clone();
            bytes[at] = if at == value_at { 0 } else { b'x' };
            refused.push((bytes, "the value of \"/text/key\" is not in normal form"));
        }
        let changes = services.methods();
        let changes = changes.iter().filter(|method| method.target.member == "Change");
        let mut objects = 0;
        for method in changes {
            objects += 1;
            let mut wire = services.connect();
            for (bytes, reason) in &refused {
                let mut body = Bytes::default();
                body.bytes(bytes);
                let answer = outcome(&mut wire, method, &body.0).unwrap();
                let (kind, text) = (answer.kind, answer.text());
                assert!(
                    kind == ERROR && text.contains(reason) && text.ends_with("nothing was changed"),
                    "{method:?} {bytes:?}: {kind} {} {text}",
                    answer.error
                );
            }
        }
        assert!(objects >= 4, "{objects}");
        services.end();
    });
}

#[test]
fn what_a_key_file_has_no_form_for_is_refused_and_what_it_escapes_comes_back() {
    in_time(|| {
        let Some(services) = Services::start() else { return };
        let path = "/ca/desrt/dconf/keyfile/text";
        let change = Target::new(fixture::NAME, path, "ca.desrt.dconf.Writer", "Change");
        let method = Method { target: change, signature: "ay".to_owned() };
        let mut wire = services.connect();
        let mut ask = |bytes: &[u8]| {
            let mut body = Bytes::default();
            body.bytes(bytes);
            outcome(&mut wire, &method, &body.0).unwrap()
        };
        for bad in ["/unmistakable/a\nb=1", "/unmistakable\n[b]/c", "/unmistakable/[x]"] {
            let answer = ask(&set(bad, "x"));
            assert!(
                answer.kind == ERROR && answer.text().ends_with("nothing was changed"),
                "{bad:?}: {} {}",
                answer.kind,
                answer.text()
            );
        }
        let strange = NOT_IN_XML.concat();
        let answer = ask(&set("/text/key", &strange));
        assert_eq!(answer.kind, RETURN, "{}", answer.text());
        let image = services.bus.dir().join("run/dconf-service/keyfile/text");
        let bytes = std::fs::read(image).unwrap();
        let stored = bytes.windows(strange.len()).any(|part| part == strange.as_bytes());
        assert!(stored, "the text did not come back");
        services.end();
    });
}

#[test]
fn what_xml_cannot_hold_is_refused_in_every_field_of_a_document() {
    in_time(|| {
        let Some(services) = Services::start() else { return };
        let mut wire = services.connect();
        let target = Target::new(SESSION, RECENT, INTERFACE, "Add");
        let method = Method { target, signature: "sa{sv}".to_owned() };
        for bad in NOT_IN_XML {
            let bad = format!("{MARK}{bad}");
            for field in ["mime", "application", "exec", "groups"] {
                let mut body = Bytes::default();
                body.text("file:///srv/a");
                body.array(8, |body| {
                    body.text(field);
                    if field == "groups" {
                        body.0.extend(*b"\x02as\0");
                        body.array(4, |body| body.text(&bad));
                    } else {
                        body.0.extend(*b"\x01s\0");
                        body.text(&bad);
                    }
                });
                let answer = outcome(&mut wire, &method, &body.0).unwrap();
                assert!(
                    answer.kind == ERROR && answer.error == INVALID_ARGS,
                    "{field} {bad:?}: {} {} {}",
                    answer.kind,
                    answer.error,
                    answer.text()
                );
                assert!(!answer.text().is_empty(), "{field} {bad:?}: no reason");
            }
        }
        // In an address they are written as the escapes that addresses have for them.
        for bad in NOT_IN_XML {
            let mut body = Bytes::default();
            body.text(&format!("file:///srv/escaped{bad}"));
            body.array(8, |_| {});
            outcome(&mut wire, &method, &body.0).unwrap();
        }
        let sync = Target::new(SESSION, RECENT, INTERFACE, "Sync");
        assert_eq!(wire.call(&sync, "", &[]).unwrap().kind, RETURN);
        let list = std::fs::read(services.bus.dir().join("data/recently-used.xbel")).unwrap();
        let list = String::from_utf8(list).unwrap();
        assert!(list.contains("file:///srv/escaped%01"), "{list}");
        let bad = |letter: char| {
            (letter < ' ' && !"\n\r\t".contains(letter)) || "\u{fffe}\u{ffff}".contains(letter)
        };
        assert!(!list.contains(bad), "{list}");
        services.end();
    });
}
