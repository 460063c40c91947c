//! The names of arguments, from descriptions of interfaces: installed files, and introspection.
//!
//! D-Bus Specification, "Introspection Data Format".

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use wire::MessageType;

/// A longer description is not read.
const LONGEST: usize = 4 << 20;
/// The most members that are known of.
const MEMBERS: usize = 100_000;
/// Where services install descriptions, below a data directory.
const INSTALLED: &str = "dbus-1/interfaces";

/// The names of arguments, by interface and member.
#[derive(Clone, Debug, Default)]
pub struct Introspection {
    members: HashMap<(String, String), Arguments>,
    interfaces: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Arguments {
    into: Vec<String>,
    out: Vec<String>,
}

impl Introspection {
    /// Reads the descriptions that are installed in these data directories; unreadable ones are skipped.
    #[must_use]
    pub fn installed(data_dirs: &[PathBuf]) -> Introspection {
        let mut known = Introspection::default();
        for dir in data_dirs {
            let Ok(entries) = std::fs::read_dir(dir.join(INSTALLED)) else { continue };
            let paths = entries.map_while(Result::ok).map(|entry| entry.path());
            for path in paths.filter(|path| path.extension().is_some_and(|end| end == "xml")) {
                if let Some(text) = text_of(&path) {
                    known.learn(&text);
                }
            }
        }
        known
    }

    /// Adds the interfaces that a description has, up to where it is damaged.
    pub fn learn(&mut self, xml: &str) {
        if xml.len() > LONGEST {
            return;
        }
        let mut reader = Reader::from_str(xml);
        let (mut interface, mut member): (Option<String>, Option<(String, bool)>) = (None, None);
        let mut arguments = Arguments::default();
        while let Ok(event) = reader.read_event() {
            match event {
                Event::Start(tag) | Event::Empty(tag) => match tag.name().as_ref() {
                    "interface" => interface = attribute(&tag, "name"),
                    "method" | "signal" => {
                        self.keep(interface.as_deref(), member.take(), &mut arguments);
                        let is_signal = tag.name().as_ref() == "signal";
                        member = attribute(&tag, "name").map(|name| (name, is_signal));
                    }
                    "arg" => {
                        let name = attribute(&tag, "name").unwrap_or_default();
                        let is_out = attribute(&tag, "direction").as_deref() == Some("out");
                        let is_signal = member.as_ref().is_some_and(|(_, is_signal)| *is_signal);
                        if is_out && !is_signal {
                            arguments.out.push(name);
                        } else {
                            arguments.into.push(name);
                        }
                    }
                    _ => (),
                },
                Event::End(tag) => match tag.name().as_ref() {
                    "method" | "signal" => {
                        self.keep(interface.as_deref(), member.take(), &mut arguments);
                    }
                    "interface" => {
                        self.keep(interface.as_deref(), member.take(), &mut arguments);
                        interface = None;
                    }
                    _ => (),
                },
                Event::Eof => break,
                _ => (),
            }
        }
    }

    fn keep(
        &mut self,
        interface: Option<&str>,
        member: Option<(String, bool)>,
        arguments: &mut Arguments,
    ) {
        let arguments = std::mem::take(arguments);
        let Some((interface, (member, _))) = interface.zip(member) else { return };
        if self.members.len() < MEMBERS {
            self.interfaces.insert(interface.to_owned());
            self.members.insert((interface.to_owned(), member), arguments);
        }
    }

    /// Returns whether an interface is known.
    #[must_use]
    pub fn knows(&self, interface: &str) -> bool {
        self.interfaces.contains(interface)
    }

    /// Returns the names of the arguments of a message; for a reply, those of the return values.
    #[must_use]
    pub fn arguments(&self, kind: MessageType, interface: &str, member: &str) -> &[String] {
        let key = (interface.to_owned(), member.to_owned());
        match (self.members.get(&key), kind) {
            (Some(known), MessageType::Return) => &known.out,
            (Some(known), MessageType::Call | MessageType::Signal) => &known.into,
            _ => &[],
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = tag.try_get_attribute(name).ok().flatten()?;
    // Names of interfaces, members and arguments have no letters that markup would have to spell.
    Some(attribute.value.into_owned())
}

fn text_of(path: &Path) -> Option<String> {
    let length = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let is_short = usize::try_from(length).is_ok_and(|length| length <= LONGEST);
    if is_short { std::fs::read_to_string(path).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN" "x">
<node><interface name="org.example.I">
  <method name="Say"><arg name="words" type="s" direction="in"/><arg type="u" name="count" direction="out"/></method>
  <method name="Quit"/>
  <signal name="Said"><arg name="words" type="s" direction="out"/><arg type="u"/></signal>
  <property name="Loud" type="b" access="read"/>
</interface></node>"#;

    #[test]
    fn arguments_are_named_for_calls_answers_and_signals() {
        let mut known = Introspection::default();
        known.learn(XML);
        let names = |kind, member: &str| known.arguments(kind, "org.example.I", member).join(",");
        assert_eq!(names(MessageType::Call, "Say"), "words");
        assert_eq!(names(MessageType::Return, "Say"), "count");
        assert_eq!(names(MessageType::Signal, "Said"), "words,");
        assert_eq!(names(MessageType::Call, "Quit"), "");
        assert_eq!(names(MessageType::Error, "Say"), "");
        assert!(known.knows("org.example.I") && !known.knows("org.example.J"));
    }

    #[test]
    fn a_damaged_description_is_read_as_far_as_it_goes() {
        for end in 0..XML.len() {
            if XML.is_char_boundary(end) {
                Introspection::default().learn(&XML[..end]);
            }
        }
        let mut known = Introspection::default();
        known.learn(
            "<node><interface name=\"a.b\"><method name=\"M\"><arg name=\"x\"/></method></interfa",
        );
        assert_eq!(known.arguments(MessageType::Call, "a.b", "M"), ["x"]);
        known.learn("<<<>>>&&&");
    }

    #[expect(clippy::disallowed_methods, reason = "a test stands for another program")]
    #[test]
    fn installed_descriptions_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let interfaces = dir.path().join(INSTALLED);
        std::fs::create_dir_all(&interfaces).unwrap();
        std::fs::write(interfaces.join("a.xml"), XML).unwrap();
        std::fs::write(interfaces.join("b.txt"), XML.replace("org.example.I", "org.example.J"))
            .unwrap();
        let known = Introspection::installed(&[dir.path().to_owned(), "/nowhere".into()]);
        assert!(known.knows("org.example.I") && !known.knows("org.example.J"));
    }
}
