//! What a client of host commands reads and writes.

use wire::Endian;

use super::*;

/// A signal that a command has ended, as a bus passes it on.
fn exited(endian: Endian) -> Vec<u8> {
    let mut numbers = Marshal::new(endian);
    numbers.u32(4711);
    numbers.u32(256);
    Draft {
        path: PATH,
        interface: INTERFACE,
        member: "HostCommandExited",
        destination: ":1.5",
        sender: ":1.4",
        signature: "uu",
        body: &numbers.bytes(),
        endian,
        ..Draft::new(MessageType::Signal, 7)
    }
    .bytes()
}

#[test]
fn a_signal_is_read_in_either_order_of_bytes() {
    for endian in [Endian::Little, Endian::Big] {
        let bytes = exited(endian);
        let message = wire::message(&bytes).unwrap();
        let ended = meaning(&message, 0, 0, None);
        assert!(matches!(
            ended,
            Ok(Meaning::Exited { service, number: 4711, status: 256 }) if service == ":1.4"
        ));
        let mut read = body(&message, "uu").ok().unwrap();
        assert!(number(&mut read).is_ok() && number(&mut read).is_ok());
        assert!(number(&mut read).is_err() && body(&message, "us").is_err());
    }
}

#[test]
fn every_cut_and_every_changed_byte_is_an_error_or_a_message() {
    let bytes = exited(Endian::Little);
    for cut in 0..bytes.len() {
        assert_eq!(read_anything(&bytes[..cut]), 0);
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            assert!(read_anything(&changed) <= 1);
        }
    }
}

#[test]
fn the_corpus_is_read_whole_and_cut() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/host_message");
    let mut messages = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for cut in 0..bytes.len() {
            let _ = read_anything(&bytes[..cut]);
        }
        messages += usize::from(read_anything(&bytes) > 0);
    }
    assert!(messages >= 5, "{messages}");
}

#[test]
fn a_call_is_what_zbus_reads() {
    let directory = b"/tmp";
    let words = [b"sh".to_vec(), b"-c".to_vec()];
    let command = HostCommandSpec {
        directory,
        arguments: &words,
        descriptors: &[],
        inherits: EnvironmentInheritance::All,
        environment: &[("A".to_owned(), "b".to_owned())],
        without_us: WithoutUs::Ends,
    };
    let mut ours = Marshal::new(Endian::Little);
    command.write(&mut ours);
    let words = [&b"sh\0"[..], &b"-c\0"[..]];
    let descriptors = std::collections::HashMap::<u32, u32>::new();
    let environment = std::collections::HashMap::from([("A", "b")]);
    let theirs = zbus::Message::method_call(PATH, "HostCommand")
        .build(&(&b"/tmp\0"[..], &words[..], descriptors, environment, 2_u32))
        .unwrap();
    let theirs = theirs.data();
    let length = u32::from_le_bytes(theirs[4..8].try_into().unwrap());
    assert_eq!(ours.bytes(), theirs[theirs.len() - usize::try_from(length).unwrap()..]);
}
