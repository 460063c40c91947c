//! `pprof` and `perfetto`: the files; what their readers make of them is tested by `profiles.py`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::fixture::{Place, refusal, stdout};

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
