//! `pprof` and `perfetto`: the files; what their readers make of them is tested by `profiles.py`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use hangs::model::HangRecord;

use crate::fixture::{DAY_NS, Place, hang, refusal, stdout};

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_profile_has_the_stacks_and_replaces_no_file() {
    for format in ["pprof", "perfetto"] {
        let place = Place::new();
        place.record_hangs(1..4);
        let file = place.path("hangs.out");
        let name = file.to_str().unwrap();
        let said = stdout(&place.run(&[format, "-o", name]));
        assert_eq!(said, format!("3 hangs written to {name}.\n"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let bytes = fs::read(&file).unwrap();
        for text in ["save_notes", "nautilus", "sync"] {
            assert!(has(&bytes, text), "{format} has no {text}");
        }
        let said = refusal(&place.run(&[format, "-o", name]));
        assert!(said.contains("cannot write") && said.contains("exists"), "{said}");
        assert_eq!(fs::read(&file).unwrap(), bytes);
        let other = place.path("none.out");
        let none = [format, "--program", "gedit", "-o", other.to_str().unwrap()];
        assert!(stdout(&place.run(&none)).starts_with("0 hangs written"), "{format}");
        assert!(!has(&fs::read(&other).unwrap(), "nautilus"));
    }
}

#[test]
fn no_name_of_a_program_is_obeyed_by_a_terminal_that_a_viewer_prints_it_on() {
    let place = Place::new();
    let mut hostile = hang(1, DAY_NS);
    let text = "\u{1b}[31m\u{202e}\n\u{9b}2J".to_owned();
    (hostile.program, hostile.unit) = (text.clone(), text.clone());
    for frame in &mut hostile.frames {
        (frame.function, frame.module) = (text.clone(), text.as_str().into());
    }
    for call in &mut hostile.calls {
        call.call.clone_from(&text);
        call.object.as_mut().unwrap().name.clone_from(&text);
    }
    place.record(&[HangRecord::Hang(Box::new(hostile))]);
    for format in ["pprof", "perfetto"] {
        let file = place.path(format);
        stdout(&place.run(&[format, "-o", file.to_str().unwrap()]));
        let bytes = fs::read(file).unwrap();
        assert!(has(&bytes, "\\x1b[31m"), "{format}");
        for bad in ["\u{1b}[31m", "\u{202e}", "\u{9b}"] {
            assert!(!has(&bytes, bad), "{format}: {bad:?}");
        }
    }
}
