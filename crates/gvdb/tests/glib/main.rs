//! Everything that GVariant bytes and texts may be, compared with the GLib of this machine.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may fail where it stands, and says what it compared"
)]

mod peer;
mod random;

use peer::{Peer, Question};
use random::Random;
use unjank_gvdb::ByteOrder;
use unjank_gvdb::gvariant::{Type, Variant, VariantView};

/// Runs `test` with one seed, or with as many as `GLIB_ROUNDS` says; prints each.
fn rounds(test: impl Fn(Random)) {
    #[expect(clippy::disallowed_methods, reason = "a long run asks for more rounds")]
    let rounds = std::env::var("GLIB_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    for seed in 0..rounds.unwrap_or(1) {
        println!("seed {seed}");
        test(Random::new(seed));
    }
}

fn question(operation: &'static str, ty: &str, bytes: &[u8]) -> Question {
    Question { operation, ty: ty.to_owned(), bytes: bytes.to_vec() }
}

fn other_order() -> ByteOrder {
    match ByteOrder::NATIVE {
        ByteOrder::Little => ByteOrder::Big,
        ByteOrder::Big => ByteOrder::Little,
    }
}

/// Makes a value anew out of what the accessors of its view say.
fn rebuild(view: VariantView<'_>) -> Variant {
    match view.ty().kind() {
        b'b' => Variant::from(view.as_bool().unwrap()),
        b'y' => Variant::from(view.as_u8().unwrap()),
        b'n' => Variant::from(view.as_i16().unwrap()),
        b'q' => Variant::from(view.as_u16().unwrap()),
        b'i' => Variant::from(view.as_i32().unwrap()),
        b'u' => Variant::from(view.as_u32().unwrap()),
        b'x' => Variant::from(view.as_i64().unwrap()),
        b't' => Variant::from(view.as_u64().unwrap()),
        b'd' => Variant::from(view.as_f64().unwrap()),
        b'h' => Variant::handle(view.as_handle().unwrap()),
        b's' => Variant::from(view.as_str().unwrap()),
        b'o' => Variant::object_path(view.as_str().unwrap()).unwrap(),
        b'g' => Variant::signature(view.as_str().unwrap()).unwrap(),
        b'v' => rebuild(view.as_variant().unwrap()).boxed(),
        b'a' => Variant::array(view.ty().element().unwrap(), view.children().map(rebuild)).unwrap(),
        b'm' => match view.child(0) {
            Some(child) => Variant::just(&rebuild(child)).unwrap(),
            None => Variant::nothing(view.ty().element().unwrap()).unwrap(),
        },
        b'{' => {
            let parts: Vec<Variant> = view.children().map(rebuild).collect();
            Variant::entry(&parts[0], &parts[1]).unwrap()
        }
        _ => Variant::tuple(view.children().map(rebuild)).unwrap(),
    }
}

#[test]
fn values_have_the_bytes_and_the_text_that_glib_gives_them() {
    let Some(peer) = Peer::new() else { return };
    rounds(|random| compare_values(&peer, random));
}

fn compare_values(peer: &Peer, mut random: Random) {
    let (mut values, mut questions) = (Vec::new(), Vec::new());
    for _ in 0..3000 {
        let ty = random.ty(4);
        let ty = Type::parse(&ty).unwrap();
        let value = random.value(ty);
        for operation in ["normal", "swap", "print", "bare"] {
            questions.push(question(operation, ty.as_str(), value.view().bytes()));
        }
        values.push(value);
    }
    let answers = peer.ask(&questions);
    let characters = peer.characters();
    let mut texts = Vec::new();
    for (value, answers) in values.iter().zip(answers.chunks(4)) {
        let [normal, swap, print, bare] = answers else { panic!("four answers each") };
        let view = value.view();
        assert!(normal.flag, "{value:?} is not normal to GLib");
        assert_eq!(normal.bytes, view.bytes(), "{value:?}");
        let swapped = VariantView::new(view.ty(), &swap.bytes, other_order());
        assert_eq!(swapped.to_variant(), *value, "swapped {}", view.ty());
        assert_eq!(characters.escape_newer(&value.print()), print.text(), "{}", view.ty());
        let ours = characters.escape_newer(&value.print_without_types());
        assert_eq!(ours, bare.text(), "{}", view.ty());
        assert_eq!(rebuild(view), *value);
        texts.push(question("parse", "-", &print.bytes));
        texts.push(question("parse", view.ty().as_str(), &bare.bytes));
    }
    for (text, answer) in texts.iter().zip(peer.ask(&texts)) {
        compare_parsed(text, &answer);
    }
}

#[test]
fn damaged_bytes_read_as_glib_reads_them() {
    let Some(peer) = Peer::new() else { return };
    rounds(|random| compare_damaged(&peer, random));
}

fn compare_damaged(peer: &Peer, mut random: Random) {
    let mut questions = Vec::new();
    for _ in 0..15_000 {
        let text = random.ty(4);
        let mut bytes = random.value(Type::parse(&text).unwrap()).view().bytes().to_vec();
        random.damage(&mut bytes);
        let text = if random.one_in(8) { random.ty(3) } else { text };
        for operation in ["normal", "swap", "print"] {
            questions.push(question(operation, &text, &bytes));
        }
    }
    let characters = peer.characters();
    let (mut changed, mut refused) = (0, 0);
    for (asked, answers) in questions.chunks(3).zip(peer.ask(&questions).chunks(3)) {
        let [normal, swap, print] = answers else { panic!("three answers each") };
        let Question { ty, bytes, .. } = &asked[0];
        let ty = Type::parse(ty).unwrap();
        let native = VariantView::new(ty, bytes, ByteOrder::NATIVE);
        let ours = native.to_variant();
        let size = bytes.len() + ty.as_str().len();
        if normal.bytes.len() > 1024 + 8 * size {
            // Here we part: defaults far larger than the input are not made.
            refused += 1;
            let default = VariantView::new(ty, &[], ByteOrder::NATIVE).to_variant();
            assert_eq!(ours, default, "{ty} {bytes:02x?}");
            continue;
        }
        changed += usize::from(normal.bytes != *bytes);
        assert_eq!(ours.view().bytes(), normal.bytes, "{ty} {bytes:02x?}");
        let is_normal = normal.flag && normal.bytes == *bytes;
        assert_eq!(native.is_normal(), is_normal, "{ty} {bytes:02x?}");
        let foreign = VariantView::new(ty, bytes, other_order());
        assert_eq!(foreign.to_variant().view().bytes(), swap.bytes, "{ty} {bytes:02x?}");
        assert_eq!(characters.escape_newer(&ours.print()), print.text(), "{ty} {bytes:02x?}");
        assert_eq!(rebuild(native), ours, "{ty} {bytes:02x?}");
        assert_eq!(ours.view().to_variant(), ours);
    }
    println!("{changed} of {} were not normal form, {refused} refused", questions.len() / 3);
    assert!(changed > 5000, "too few cases were damaged for this to mean anything");
}

#[test]
fn texts_parse_as_glib_parses_them() {
    let Some(peer) = Peer::new() else { return };
    rounds(|random| compare_texts(&peer, random));
}

fn compare_texts(peer: &Peer, mut random: Random) {
    let mut questions = Vec::new();
    for case in 0..40_000 {
        let ty = random.ty(3);
        let mut text = if case % 2 == 0 {
            let value = random.value(Type::parse(&ty).unwrap());
            let mut text =
                if random.one_in(2) { value.print() } else { value.print_without_types() };
            if random.one_in(2) {
                random.edit(&mut text);
            }
            text
        } else {
            random.soup()
        };
        text.retain(|c| c != '\0');
        let ty = match random.below(4) {
            0 | 1 => "-".to_owned(),
            2 => ty,
            _ => random.ty(2),
        };
        questions.push(question("parse", &ty, text.as_bytes()));
    }
    let mut good = 0;
    for (asked, answer) in questions.iter().zip(peer.ask(&questions)) {
        compare_parsed(asked, &answer);
        good += usize::from(answer.flag);
    }
    println!("{good} of {} texts were values", questions.len());
    assert!(good > 6000, "too few texts were values for this to mean anything");
}

fn compare_parsed(asked: &Question, answer: &peer::Answer) {
    let text = std::str::from_utf8(&asked.bytes).unwrap();
    let ours = Variant::parse(Type::parse(&asked.ty), text);
    let case = format!("{} {text:?}", asked.ty);
    match ours {
        Ok(value) => {
            let theirs = if answer.flag { "another value".to_owned() } else { answer.text() };
            assert!(
                answer.flag && answer.bytes == value.as_bytes(),
                "{case}: {value:?}, not {theirs}"
            );
        }
        // An escape that is no character: GLib fails without saying why.
        Err(error) if answer.bytes.is_empty() => {
            assert!(error.0.ends_with(":not a valid string"), "{case}: {error}");
        }
        Err(error) => {
            assert!(!answer.flag, "{case}: {error}, which GLib takes");
            assert_eq!(error.0, answer.text(), "{case}");
        }
    }
}

#[test]
fn the_same_characters_are_printable() {
    let Some(peer) = Peer::new() else { return };
    let theirs = peer.characters();
    assert_eq!(theirs.len(), 0x11_0000);
    let mut newer = 0;
    for c in '\u{80}'..=char::MAX {
        let ours = Variant::from(&*c.to_string()).print() == format!("'{c}'");
        if ours != theirs.is_printable(c) {
            // Our tables may know characters that came after the GLib of this machine.
            assert!(ours && theirs.is_unassigned(c), "U+{:04X} differs", u32::from(c));
            newer += 1;
        }
    }
    println!("{newer} characters are newer than this GLib");
}

#[test]
fn the_comparison_notices_a_wrong_answer() {
    let Some(peer) = Peer::new() else { return };
    // Bytes of another value, a text of another value and an error at another place.
    let asked = question("normal", "as", Variant::from(vec!["a"]).view().bytes());
    let answers = peer.ask(&[asked]);
    assert_ne!(answers[0].bytes, Variant::from(vec!["b"]).view().bytes());
    let asked = question("parse", "-", b"[1, 2");
    let answer = peer.ask(&[question("parse", "-", b"[1, 22")]).remove(0);
    let noticed = std::panic::catch_unwind(|| compare_parsed(&asked, &answer));
    assert!(noticed.is_err());
}
