//! A document is changed where it must be, kept elsewhere, and salvaged when it is damaged.

use std::fmt::Write;

use proptest::prelude::*;

use super::markup::is_writable;
use super::*;
use crate::{OpeningApplication, Privacy, RecentEntry, RecentTime, Uri};

/// As GLib, KDE and others have written it, and a person.
const MIXED: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE xbel PUBLIC "+//IDN python.org//DTD XML Bookmark Exchange Language 1.0//EN//XML" "x.dtd" [ <!ENTITY own "mine"> ]>
<!-- by hand -->
<xbel version="1.0" xmlns:x="urn:x"
      xmlns:bookmark="http://www.freedesktop.org/standards/desktop-bookmarks"
      xmlns:mime="http://www.freedesktop.org/standards/shared-mime-info"
>
  <title>Recent</title>
  <bookmark href="file:///a" added="2026-11-21T17:33:11.395718Z" modified="2026-11-21T17:33:11.395722Z" visited="2026-11-21T17:33:11.395719Z">
    <title>A &amp; B</title>
    <info><!-- mine -->
      <metadata owner="http://freedesktop.org">
        <mime:mime-type type="text/plain"/>
        <bookmark:groups>
          <bookmark:group>Office</bookmark:group>
        </bookmark:groups>
        <bookmark:applications>
          <bookmark:application name="gedit" exec="&apos;gedit %u&apos;" modified="2026-11-21T17:33:11.395720Z" count="3" x:more="2"/>
        </bookmark:applications>
        <bookmark:icon href="file:///i.png" type="image/png"/>
        <bookmark:icon type="x/y" href=""/>
      </metadata>
      <metadata owner="http://example.org" x:y="z"/>
    </info>
  </bookmark>
  <bookmark href="&own;"><title>only its own declarations know</title></bookmark>
  <bookmark href='file:///b'/>
</xbel>
<!-- end -->
"#;

fn parse(text: &str) -> XbelDocument {
    XbelDocument::parse(text.as_bytes().to_vec()).unwrap()
}

fn uris(document: &XbelDocument) -> Vec<&str> {
    document.bookmarks().iter().filter_map(Bookmark::entry).map(|e| e.uri.as_str()).collect()
}

fn entries(document: &XbelDocument) -> Vec<RecentEntry> {
    document.bookmarks().iter().filter_map(|bookmark| bookmark.entry().cloned()).collect()
}

fn entry(name: &str) -> RecentEntry {
    RecentEntry {
        uri: Uri::exact(name).unwrap(),
        mime: Some("text/plain".into()),
        groups: vec!["Office".into()],
        title: None,
        description: None,
        privacy: Privacy::Public,
        added: RecentTime(1_795_282_391_000_000),
        modified: RecentTime(1_795_282_392_000_001),
        visited: RecentTime(1_795_282_393_000_000),
        applications: vec![OpeningApplication {
            name: "org.kde.kate".into(),
            exec: "kate -b %U".into(),
            count: 2,
            modified: RecentTime(1_795_282_392_000_000),
        }],
    }
}

#[test]
fn what_every_program_wrote_is_read() {
    let document = parse(MIXED);
    assert_eq!(document.condition(), Condition::Whole);
    assert_eq!(uris(&document), ["file:///a", "file:///b"]);
    let first = &entries(&document)[0];
    assert_eq!(first.title.as_deref(), Some("A & B"));
    assert_eq!(first.mime.as_deref(), Some("text/plain"));
    assert_eq!(first.groups, ["Office"]);
    assert_eq!(first.modified, RecentTime(1_795_282_391_395_722));
    assert_eq!(
        first.applications,
        [OpeningApplication {
            name: "gedit".into(),
            exec: "'gedit %u'".into(),
            count: 3,
            modified: RecentTime(1_795_282_391_395_720),
        }]
    );
    assert_eq!(document.edit(|_| BookmarkChange::Keep, []), None);
}

#[test]
fn only_what_changes_is_written() {
    let document = parse(MIXED);
    let mut changed = entries(&document)[0].clone();
    changed.visited = RecentTime(1_795_282_394_000_000);
    changed.groups.push("a<b".into());
    changed.privacy = Privacy::Private;
    changed.applications[0].count = 4;
    changed.applications.push(entry("").applications[0].clone());
    let text = document
        .edit(
            |bookmark| match bookmark.entry() {
                Some(entry) if entry.uri == changed.uri => BookmarkChange::Set(&changed),
                _ => BookmarkChange::Keep,
            },
            [],
        )
        .unwrap();
    let expected = MIXED
        .replace(".395719Z", "@").replace("17:33:11@", "17:33:14.000000Z")
        .replace("Office</bookmark:group>", "Office</bookmark:group>\n          <bookmark:group>a&lt;b</bookmark:group>")
        .replace("count=\"3\" x:more=\"2\"/>", "count=\"4\" x:more=\"2\"/>\n          <bookmark:application name=\"org.kde.kate\" exec=\"kate -b %U\" modified=\"2026-11-21T17:33:12.000000Z\" count=\"2\"/>")
        .replace("<bookmark:icon type=\"x/y\" href=\"\"/>", "<bookmark:icon type=\"x/y\" href=\"\"/>\n        <bookmark:private/>");
    assert_eq!(text, expected);
    assert_eq!(entries(&parse(&text))[0], changed);
}

#[test]
fn bookmarks_go_and_come_and_the_rest_stays() {
    let document = parse(MIXED);
    let new = entry("file:///new?a&b");
    let text = document
        .edit(
            |bookmark| match bookmark.entry() {
                Some(entry) if entry.uri.as_str() == "file:///a" => BookmarkChange::Remove,
                _ => BookmarkChange::Keep,
            },
            [&new],
        )
        .unwrap();
    let from = MIXED.find("\n  <bookmark href=\"file:///a\"").unwrap();
    let to = MIXED.find("\n  <bookmark href=\"&own;").unwrap();
    assert!(text.starts_with(&MIXED[..from]));
    assert!(text[from..].starts_with(&MIXED[to..MIXED.find("\n</xbel>").unwrap()]));
    assert!(text.ends_with("\n  </bookmark>\n</xbel>\n<!-- end -->\n"), "{text}");
    let again = parse(&text);
    assert_eq!(uris(&again), ["file:///b", "file:///new?a&b"]);
    assert_eq!(entries(&again)[1], new);
}

#[test]
fn every_way_to_write_nothing_can_be_filled() {
    let new = entry("file:///n");
    for text in [
        "<xbel/>",
        "<?xml version='1.0'?><xbel version=\"1.0\" />",
        "<xbel></xbel>",
        "\u{feff}<xbel>\n</xbel>\n",
        "",
        "\0\0\0",
        "no xml at all & more",
        "<html><body/></html>",
        "<xbel",
        "<xbel>",
    ] {
        let document = parse(text);
        let out = document.edit(|_| BookmarkChange::Keep, [&new]).unwrap();
        let again = parse(&out);
        assert_eq!(again.condition(), Condition::Whole, "{text:?} gave {out}");
        assert_eq!(entries(&again), std::slice::from_ref(&new), "{text:?} gave {out}");
        assert!(out.contains("xmlns:bookmark=") && out.contains("xmlns:mime="), "{out}");
    }
    let out = XbelDocument::new().edit(|_| BookmarkChange::Keep, [&new]).unwrap();
    assert_eq!(entries(&parse(&out)), [new]);
}

#[test]
fn bare_bookmarks_are_completed() {
    let wanted = entry("file:///b");
    for bare in [
        "<bookmark href='file:///b'/>",
        "<bookmark href='file:///b' ></bookmark>",
        "<bookmark href='file:///b'><info/></bookmark>",
        "<bookmark href='file:///b'><info><metadata owner='x'/></info></bookmark>",
        "<bookmark href='file:///b'>\n<info>\n<metadata owner='http://freedesktop.org'>\n</metadata></info></bookmark>",
        "<bookmark href='file:///b' added='soon' x='<y'><info><metadata owner='http://freedesktop.org'><bookmark:applications/><bookmark:groups/></metadata></info></bookmark>",
        "<bookmark href='file:///b'><title/><desc>d</desc><info><metadata owner='http://freedesktop.org'><bookmark:private/></metadata></info></bookmark>",
    ] {
        let document = parse(&format!("<xbel>{bare}</xbel>"));
        let text = document.edit(|_| BookmarkChange::Set(&wanted), []).unwrap();
        let again = parse(&text);
        let read = entries(&again).remove(0);
        assert_eq!(RecentEntry { description: None, ..read }, wanted, "{bare} gave {text}");
        assert_eq!(again.edit(|_| BookmarkChange::Set(&wanted), []), None, "{bare} gave {text}");
    }
}

fn list_of(count: usize) -> String {
    let all: Vec<RecentEntry> =
        (0..count).map(|n| entry(&format!("file:///home/u/doc%20{n}"))).collect();
    XbelDocument::new().edit(|_| BookmarkChange::Keep, &all).unwrap()
}

#[test]
fn of_a_cut_file_everything_before_the_cut_is_kept() {
    let text = list_of(5);
    let whole = entries(&parse(&text));
    let end = text.find("</xbel>").unwrap();
    for cut in 0..end {
        let document = XbelDocument::parse(text.as_bytes()[..cut].to_vec()).unwrap();
        assert_eq!(document.condition(), Condition::Damaged, "cut at {cut}");
        let complete = text[..cut].matches("</bookmark>").count();
        let found = entries(&document);
        assert_eq!(found[..complete], whole[..complete], "cut at {cut}");
        let named = text[..cut].matches("visited=\"").count();
        assert!(found.len() + 1 >= named, "cut at {cut}: {} of {named}", found.len());
        let again = parse(&document.edit(|_| BookmarkChange::Keep, []).unwrap());
        assert_eq!(again.condition(), Condition::Whole, "cut at {cut}");
        assert_eq!(entries(&again), found, "cut at {cut}");
    }
}

#[test]
fn a_hole_costs_the_bookmarks_that_it_touches() {
    let text = list_of(20);
    for (at, len) in [(400, 10), (900, 700), (2000, 1), (3000, 64), (1500, 300), (5, 100)] {
        for filler in ["", "\0", "<", "&", "\u{1}", "<!--", "]]>", "\u{fffd}"] {
            let damaged = format!("{}{}{}", &text[..at], filler.repeat(len / 4), &text[at + len..]);
            let document = parse(&damaged);
            let touched = len / 400 + 2;
            // A comment that never ends hides what follows; the search for bookmarks goes on inside it.
            assert!(
                document.bookmarks().len() + touched >= 20,
                "{at} {len} {filler:?}: {}",
                document.bookmarks().len()
            );
            if let Some(text) = document.edit(|_| BookmarkChange::Keep, []) {
                let again = parse(&text);
                assert_eq!(again.condition(), Condition::Whole, "{at} {len} {filler:?}");
                assert_eq!(entries(&again), entries(&document), "{at} {len} {filler:?}");
            }
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_escaped_in_names() {
    let mut bytes = b"<xbel><bookmark href=\"file:///caf".to_vec();
    bytes.extend(b"\xe9\"/></xbel>");
    let document = XbelDocument::parse(bytes).unwrap();
    assert_eq!(document.condition(), Condition::Damaged);
    assert_eq!(uris(&document), ["file:///caf%E9"]);
}

#[test]
fn hostile_documents_take_no_more_than_their_length() {
    let deep = format!("<xbel version='1.0'><bookmark href='file:///a'>{}", "<a>".repeat(1 << 20));
    assert_eq!(uris(&parse(&deep)), ["file:///a"]);
    let unclosed = format!("<xbel version='1.0'>{}", "<bookmark href='a'><!--".repeat(40_000));
    assert_eq!(parse(&unclosed).condition(), Condition::Damaged);
    let laughs = "<!DOCTYPE xbel [<!ENTITY a \"aaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]><xbel version='1.0'><bookmark href=\"&b;\"/></xbel>";
    let document = parse(laughs);
    assert_eq!((document.condition(), document.bookmarks().len()), (Condition::Whole, 1));
    assert!(document.bookmarks()[0].entry().is_none());
    let long = format!(
        "<xbel version='1.0'><bookmark href='file:///a'><title>{}</title></bookmark></xbel>",
        "x".repeat(1 << 20)
    );
    assert!(parse(&long).bookmarks()[0].entry().is_none());
    assert!(XbelDocument::parse(vec![b' '; MAX_BYTES + 1]).is_err());
    let mut groups = String::from(
        "<xbel version='1.0'><bookmark href='file:///a'><info><metadata owner='http://freedesktop.org'><bookmark:groups>",
    );
    (0..1500).for_each(|n| write!(groups, "<bookmark:group>{n}</bookmark:group>").unwrap());
    groups.push_str("</bookmark:groups></metadata></info></bookmark></xbel>");
    assert_eq!(entries(&parse(&groups))[0].groups.len(), 1000);
}

fn text() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9 <>&\"'/%:é\u{1F600}\t]{1,12}".prop_map(|text| text)
}

fn some_entry(uri: String) -> impl Strategy<Value = RecentEntry> {
    let time = || (0_i64..4_000_000_000_000_000).prop_map(RecentTime);
    let application =
        (text(), text(), 0..9_u32, time()).prop_map(|(name, exec, count, modified)| {
            OpeningApplication { name, exec, count, modified }
        });
    (
        (proptest::option::of(text()), proptest::option::of(text()), proptest::option::of(text())),
        proptest::collection::btree_set(text(), 0..4),
        any::<bool>(),
        (time(), time(), time()),
        proptest::collection::vec(application, 0..4),
    )
        .prop_map(
            move |((mime, title, description), groups, private, times, mut applications)| {
                applications.sort_by(|a, b| a.name.cmp(&b.name));
                applications.dedup_by(|a, b| a.name == b.name);
                RecentEntry {
                    uri: Uri::exact(uri.clone()).unwrap(),
                    mime,
                    groups: groups.into_iter().collect(),
                    title,
                    description,
                    privacy: if private { Privacy::Private } else { Privacy::Public },
                    added: times.0,
                    modified: times.1,
                    visited: times.2,
                    applications,
                }
            },
        )
}

/// What an entry says after `new` was written over it: nothing goes that is only there.
fn laid_over(old: &RecentEntry, new: &RecentEntry) -> RecentEntry {
    let mut both = new.clone();
    both.mime = both.mime.or(old.mime.clone());
    both.title = both.title.or(old.title.clone());
    both.description = both.description.or(old.description.clone());
    let mut groups = old.groups.clone();
    groups.extend(new.groups.iter().filter(|g| !old.groups.contains(g)).cloned());
    both.groups = groups;
    let mut applications: Vec<OpeningApplication> = old
        .applications
        .iter()
        .map(|known| {
            new.applications.iter().find(|n| n.name == known.name).unwrap_or(known).clone()
        })
        .collect();
    applications.extend(
        new.applications
            .iter()
            .filter(|a| !old.applications.iter().any(|o| o.name == a.name))
            .cloned(),
    );
    both.applications = applications;
    both
}

proptest! {
    #[test]
    fn an_entry_is_read_as_it_was_written(entry in some_entry("file:///x%20y".into())) {
        prop_assert!(entry.title.iter().all(|text| is_writable(text)));
        let text = XbelDocument::new().edit(|_| BookmarkChange::Keep, [&entry]).unwrap();
        prop_assert_eq!(entries(&parse(&text)), vec![entry]);
    }

    #[test]
    fn an_entry_laid_over_another_keeps_what_only_that_has(
        old in some_entry("file:///x".into()),
        new in some_entry("file:///x".into()),
        flat in any::<bool>(),
    ) {
        let mut text = XbelDocument::new().edit(|_| BookmarkChange::Keep, [&old]).unwrap();
        if flat {
            text = text.replace("\n  ", "").replace("\n</xbel", "</xbel");
        }
        let document = parse(&text);
        let Some(changed) = document.edit(|_| BookmarkChange::Set(&new), []) else {
            prop_assert_eq!(laid_over(&old, &new), old);
            return Ok(());
        };
        let again = parse(&changed);
        prop_assert_eq!(entries(&again), vec![laid_over(&old, &new)], "{}", changed);
        prop_assert_eq!(again.edit(|_| BookmarkChange::Set(&new), []), None);
    }
}

#[test]
fn what_makes_gtk_refuse_the_whole_list_is_damage_and_is_gone_when_it_is_written() {
    let whole = |text: &str| parse(text).condition() == Condition::Whole;
    assert!(whole(MIXED));
    let declared = MIXED.replace("xmlns:bookmark=", "xmlns:other=");
    let undeclared = MIXED.replace("xmlns:mime=", "xmlns:m=");
    let utf16 = format!("\u{feff}{}", MIXED.replace("UTF-8", "UTF-16"));
    let utf16: Vec<u8> = utf16.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let behind = [MIXED, "junk", "<more/>"].map(|junk| format!("{MIXED}{junk}").into_bytes());
    let before = format!("junk{}", &MIXED[MIXED.find("<xbel").unwrap()..]).into_bytes();
    for bytes in
        behind.into_iter().chain([before, declared.into_bytes(), undeclared.into_bytes(), utf16])
    {
        let document = XbelDocument::parse(bytes).unwrap();
        assert_eq!(document.condition(), Condition::Damaged);
        let text = document.edit(|_| BookmarkChange::Keep, []).unwrap();
        let again = parse(&text);
        assert_eq!(again.condition(), Condition::Whole, "{text}");
        assert_eq!(uris(&again), ["file:///a", "file:///b"], "{text}");
        assert_eq!(text.matches("</xbel>").count(), 1);
    }
}
