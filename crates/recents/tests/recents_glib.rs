//! Which lists GLib refuses as a whole: we take the same for whole, and mend the others so that it takes them.
#![expect(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![expect(clippy::print_stderr, reason = "a skip is said aloud")]
#![expect(clippy::disallowed_methods, reason = "a test stands for other programs")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use unjank_recents::xbel::{BookmarkChange, Condition, XbelDocument};

/// A list with a mark at each place where something may be put.
const LIST: &str = concat!(
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xbel version=\"1.0\" ",
    "xmlns:bookmark=\"http://www.freedesktop.org/standards/desktop-bookmarks\" ",
    "xmlns:mime=\"http://www.freedesktop.org/standards/shared-mime-info\" xmlns:x=\"urn:x\">@",
    "<bookmark href=\"file:///a\" added=\"2026-11-21T17:33:11Z\" modified=\"2026-11-21T17:33:12Z\" ",
    "visited=\"2026-11-21T17:33:13Z\"#>@<title>t@</title>@<desc>d@</desc><info>@",
    "<metadata owner=\"http://freedesktop.org\"#>@<mime:mime-type type=\"text/plain\"#>@</mime:mime-type>",
    "<bookmark:groups>@<bookmark:group>g@</bookmark:group>@</bookmark:groups>@",
    "<bookmark:applications>@<bookmark:application name=\"n\" exec=\"e\" modified=\"2026-11-21T17:33:12Z\" ",
    "count=\"1\"#>@</bookmark:application></bookmark:applications>",
    "<bookmark:private>@</bookmark:private><bookmark:icon href=\"i\" type=\"image/png\">@</bookmark:icon>@",
    "</metadata>@</info>@</bookmark>@<bookmark href=\"file:///b\"/>@</xbel>"
);

/// What is put at a mark between elements.
const ELEMENTS: &[&str] = &[
    "<x:y/>",
    "<y/>",
    "<x:y>z</x:y>",
    "<p:q xmlns:p=\"urn:p\"/>",
    "<bookmark:private/>",
    "<bookmark:group>h</bookmark:group>",
    "<bookmark:groups/>",
    "<bookmark:application name=\"m\" exec=\"f\"/>",
    "<bookmark:application name=\"m\"/>",
    "<bookmark:application exec=\"m\"/>",
    "<bookmark:icon type=\"a/b\"/>",
    "<mime:mime-type type=\"a/b\"/>",
    "<metadata owner=\"x\"/>",
    "<metadata owner=\"x\"><y/></metadata>",
    "<info/>",
    "<title>u</title>",
    "<desc/>",
    "<folder/>",
    "<separator/>",
    "<bookmark href=\"file:///c\"/>",
    "<bookmark href=\"file:///a\"/>",
    "<bookmark/>",
    "<!-- c -->",
    "<?pi?>",
    "text",
];

/// What is put behind the attributes of a tag.
const ATTRIBUTES: &[&str] = &[" z=\"1\"", " x:z=\"1\"", " xmlns:q=\"urn:q\""];

/// What is left out or spelled otherwise.
const REPLACED: &[(&str, &str)] = &[
    (" href=\"file:///a\"", ""),
    (" version=\"1.0\" xmlns", " xmlns"),
    (" owner=\"http://freedesktop.org\"", " owner=\"http://freedesktop.org\" q=\"1\""),
    (" added=\"2026-11-21T17:33:11Z\"", ""),
    (" added=\"2026-11-21T17:33:11Z\"", " added=\"soon\""),
    (" modified=\"2026-11-21T17:33:12Z\"", " modified=\"2026-11-21T17:33:12\""),
    (" visited=\"2026-11-21T17:33:13Z\"", " visited=\"\""),
    (" type=\"text/plain\"", ""),
    (" name=\"n\"", ""),
    (" exec=\"e\"", ""),
    (" count=\"1\"", " count=\"x\""),
    (" href=\"i\"", ""),
    ("<bookmark href=\"file:///b\"/>", "<bookmark href=\"file:///a\"/>"),
    (" encoding=\"UTF-8\"", ""),
];

fn plain(list: &str) -> String {
    list.replace(['@', '#'], "")
}

fn lists() -> Vec<String> {
    let mut lists = vec![plain(LIST)];
    for (mark, put) in [('@', ELEMENTS), ('#', ATTRIBUTES)] {
        for (at, _) in LIST.match_indices(mark) {
            let one =
                |text: &&str| format!("{}{text}{}", plain(&LIST[..at]), plain(&LIST[at + 1..]));
            lists.extend(put.iter().map(one));
        }
    }
    lists.extend(REPLACED.iter().map(|(from, to)| plain(LIST).replacen(from, to, 1)));
    lists
}

/// Returns how many bookmarks GLib finds in each list; -1 where it refuses it.
fn taken_by_glib(lists: &[String]) -> Option<Vec<i64>> {
    let asked = Command::new("pkg-config").args(["--cflags", "--libs", "glib-2.0"]).output();
    let flags = asked.ok().filter(|output| output.status.success());
    let Some(flags) = flags else {
        assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: no libglib2.0-dev");
        eprintln!("SKIPPED: no libglib2.0-dev");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("recent_read");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers/recent_read.c");
    let built = Command::new("gcc")
        .args(["-O1", "-Wall", "-o"])
        .args([&program, &source])
        .args(String::from_utf8(flags.stdout).unwrap().split_whitespace())
        .status();
    assert!(built.unwrap().success());
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = lists.iter().map(|list| format!("{list}\0")).collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let counts: Vec<i64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(counts.len(), lists.len());
    Some(counts)
}

#[test]
fn a_list_counts_as_whole_where_glib_takes_it_and_is_mended_where_it_does_not() {
    let lists = lists();
    assert!(lists.len() > 400, "{}", lists.len());
    let Some(taken) = taken_by_glib(&lists) else { return };
    assert!(taken.iter().filter(|count| **count < 0).count() > 200);
    let (mut problems, mut mended) = (Vec::new(), Vec::new());
    for (list, count) in lists.iter().zip(taken) {
        let document = XbelDocument::parse(list.clone().into_bytes()).unwrap();
        let is_whole = document.condition() == Condition::Whole;
        // For GLib what is inside of `private` is beside it; we take that for no list that a program meant, and mend it.
        let is_stricter = list.contains("<bookmark:private><") && !is_whole;
        if is_whole != (count >= 0) && !is_stricter {
            problems.push(format!("GLib {count}, we {is_whole}: {list}"));
        }
        let text = document.edit(|_| BookmarkChange::Keep, []);
        mended.push((list, document.bookmarks().len(), text.unwrap_or_else(|| list.clone())));
    }
    let texts: Vec<String> = mended.iter().map(|(.., text)| text.clone()).collect();
    for ((list, count, text), taken) in mended.iter().zip(taken_by_glib(&texts).unwrap()) {
        if taken != i64::try_from(*count).unwrap() || *count == 0 {
            problems.push(format!("GLib finds {taken} of {count} in {text}\nmade of {list}"));
        }
    }
    assert!(
        problems.is_empty(),
        "{}: {}",
        problems.len(),
        problems[..problems.len().min(12)].join("\n\n")
    );
}
