//! Messages of both orders of bytes, whole, cut and broken.

use super::body::{BodyValue, check, values};
use super::write::{Draft, Marshal};
use super::*;

fn body(endian: Endian) -> Vec<u8> {
    let mut body = Marshal::new(endian);
    body.text("text");
    body.array(8, |entries| {
        entries.pad(8);
        entries.text("key");
        entries.signature("u");
        entries.u32(7);
    });
    body.array(1, |bytes| bytes.raw(b"bytes"));
    body.array(4, |texts| {
        texts.text("one");
        texts.text("two");
    });
    body.pad(8);
    body.u32(1);
    body.u64(2);
    body.bytes()
}

const TYPES: &str = "sa{sv}ayas(ut)";

fn call<'d>(endian: Endian, body: &'d [u8]) -> Draft<'d> {
    Draft { signature: TYPES, body, endian, sender: ":1.7", flags: 3, ..Draft::to_bus(9, "Look") }
}

fn shown(value: &BodyValue<'_>) -> String {
    match value {
        BodyValue::Array(array) => {
            let items: Vec<String> = array.items().map(|item| shown(&item.unwrap())).collect();
            format!("[{}]", items.join(", "))
        }
        BodyValue::Entry(entry) => format!("{}: {}", shown(&entry.0), shown(&entry.1)),
        BodyValue::Structure(members) => {
            format!("({})", members.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        BodyValue::Variant(types, inside) => format!("<{types} {}>", shown(inside)),
        BodyValue::Text(text) => (*text).to_owned(),
        BodyValue::Bytes(bytes) => bytes.escape_ascii().to_string(),
        BodyValue::Uint32(number) => number.to_string(),
        BodyValue::Uint64(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_call_is_read_in_either_order_of_bytes() {
    for endian in [Endian::Little, Endian::Big] {
        let body = body(endian);
        let bytes = call(endian, &body).bytes();
        let header = message(&bytes).unwrap();
        assert_eq!(
            (header.kind, header.serial.get(), header.reply_serial),
            (MessageType::Call, 9, None)
        );
        assert_eq!((header.member, header.sender), (Some("Look"), Some(":1.7")));
        assert!(header.flags.no_reply_expected() && header.flags.no_auto_start());
        assert!(!header.flags.allow_interactive_authorization() && !header.is_cut());
        let texts: Vec<String> = values(&header).map(|value| shown(&value.unwrap())).collect();
        assert_eq!(texts, ["text", "[key: <u 7>]", "bytes", "[one, two]", "(1, 2)"]);
        assert_eq!(check(&header), Ok(()));
        assert_eq!(usize::try_from(length(&bytes).unwrap()).unwrap(), bytes.len());
    }
}

#[test]
fn a_body_that_was_cut_off_is_read_as_far_as_it_goes() {
    let body = body(Endian::Little);
    let bytes = call(Endian::Little, &body).bytes();
    let begin = bytes.len() - body.len();
    for end in 0..bytes.len() {
        let read = message(&bytes[..end]);
        assert_eq!(read.is_ok(), end >= begin, "{end}");
        if let Ok(header) = read {
            assert!(header.is_cut());
            let last = values(&header).last().unwrap();
            assert_eq!(last.unwrap_err().fault, DecodeFault::Cut, "{end}");
        }
    }
}

#[test]
fn what_breaks_a_rule_is_no_message() {
    let good = call(Endian::Little, &body(Endian::Little)).bytes();
    let broken = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        message(&bytes).map(|_| ()).map_err(|error| error.fault)
    };
    assert_eq!(broken(0, b'x'), Err(DecodeFault::Endian));
    assert_eq!(broken(1, 0), Err(DecodeFault::Kind));
    assert_eq!(broken(3, 2), Err(DecodeFault::Version));
    assert_eq!(broken(8, 0), Err(DecodeFault::Serial));
    assert_eq!(broken(7, 0xff), Err(DecodeFault::TooLong));
    assert_eq!(broken(16, 0), Err(DecodeFault::Field));
    assert_eq!(broken(24, b'-'), Err(DecodeFault::Name("object path")));
    let mut longer = good.clone();
    longer.push(0);
    assert_eq!(message(&longer).unwrap_err().fault, DecodeFault::Trailing);
    let draft = |draft: Draft<'_>| message(&draft.bytes()).map(|_| ()).map_err(|error| error.fault);
    let signal =
        Draft { path: "/a", member: "M", interface: "a.b", ..Draft::new(MessageType::Signal, 1) };
    assert_eq!(draft(signal), Ok(()));
    assert_eq!(draft(Draft { interface: "", ..signal }), Err(DecodeFault::Missing("interface")));
    assert_eq!(draft(Draft { path: "", ..signal }), Err(DecodeFault::Missing("object path")));
    assert_eq!(
        draft(Draft::new(MessageType::Return, 1)),
        Err(DecodeFault::Missing("reply serial"))
    );
    assert_eq!(draft(Draft::new(MessageType::Other(77), 1)), Ok(()));
    assert_eq!(draft(Draft { body: &[0], ..signal }), Err(DecodeFault::Trailing));
    assert_eq!(draft(Draft { signature: "a", ..signal }), Err(DecodeFault::Signature));
}

#[test]
fn a_body_that_is_not_of_its_types_is_an_error() {
    let fault = |types: &str, body: &[u8]| {
        let draft = Draft {
            signature: types,
            body,
            path: "/a",
            member: "M",
            interface: "a.b",
            ..Draft::new(MessageType::Signal, 1)
        };
        let bytes = draft.bytes();
        check(&message(&bytes).unwrap()).map_err(|error| error.fault)
    };
    assert_eq!(fault("y", &[1]), Ok(()));
    assert_eq!(fault("y", &[1, 2]), Err(DecodeFault::Trailing));
    assert_eq!(fault("yu", &[1, 0, 0, 1, 0, 0, 0, 0]), Err(DecodeFault::Padding));
    assert_eq!(fault("b", &[2, 0, 0, 0]), Err(DecodeFault::Boolean));
    assert_eq!(fault("s", b"\x01\0\0\0ab"), Err(DecodeFault::Text));
    assert_eq!(fault("s", b"\x01\0\0\0\xff\0"), Err(DecodeFault::Text));
    assert_eq!(fault("o", b"\x01\0\0\0a\0"), Err(DecodeFault::Name("object path")));
    assert_eq!(fault("g", b"\x01a\0"), Err(DecodeFault::Signature));
    assert_eq!(fault("v", b"\x02yy\0ab"), Err(DecodeFault::Signature));
    assert_eq!(fault("an", &[3, 0, 0, 0, 0, 0, 0]), Err(DecodeFault::Array));
    assert_eq!(fault("as", b"\x05\0\0\0\x01\0\0\0aa"), Err(DecodeFault::Array));
    assert_eq!(fault("ax", &[0, 0, 0, 0]), Err(DecodeFault::Cut));
    assert_eq!(fault("ax", &[0, 0, 0, 0, 0, 0, 0, 0]), Ok(()));
}

#[test]
fn variants_in_variants_have_an_end() {
    let nested = |depth: usize| {
        let mut body = b"\x01v\0".repeat(depth);
        body.extend(b"\x01y\0\x07");
        let draft = Draft {
            signature: "v",
            body: &body,
            path: "/a",
            member: "M",
            interface: "a.b",
            ..Draft::new(MessageType::Signal, 1)
        };
        check(&message(&draft.bytes()).unwrap()).map_err(|error| error.fault)
    };
    assert_eq!(nested(63), Ok(()));
    assert_eq!(nested(64), Err(DecodeFault::TooDeep));
}

#[test]
fn the_field_of_container_instances_has_a_type() {
    let body = body(Endian::Little);
    let bytes = call(Endian::Little, &body).bytes();
    // The interface becomes field 10, which is of another type.
    let at = bytes.windows(4).position(|field| field == [2, 1, b's', 0]).unwrap();
    let mut changed = bytes.clone();
    changed[at] = 10;
    assert_eq!(message(&changed).unwrap_err().fault, DecodeFault::Field);
    // A later one is nobody's yet.
    changed[at] = 11;
    assert!(message(&changed).is_ok());
}
