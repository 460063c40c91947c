//! Recent documents by `recently-used-xbel` and by our crate, in turns, each in a home of its own; see README.md.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use recents::{Addition, Privacy, Recents, RecentsFiles, RememberingProgram, Uri, projection};
use unjank_replace::{Row, print_ratios, print_rows};

/// A document as GTK writes it, with what recently-used-xbel has no field for.
const BOOKMARK: &str = r#"  <bookmark href="file:///home/ann/NUMBER.odt" added="2026-01-01T00:00:00.000000Z" modified="2026-11-01T00:00:00.000000Z" visited="2026-11-01T00:00:00.000000Z">
    <title>Report NUMBER</title>
    <info><metadata owner="http://freedesktop.org">
      <mime:mime-type type="application/vnd.oasis.opendocument.text"/>
      <bookmark:groups><bookmark:group>Office</bookmark:group></bookmark:groups>
      <bookmark:applications><bookmark:application name="writer" exec="&apos;writer %u&apos;" modified="2026-11-01T00:00:00.000000Z" count="1"/></bookmark:applications>
      <bookmark:private/>
    </metadata></info>
  </bookmark>
"#;
const HEAD: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<xbel version="1.0" xmlns:bookmark="http://www.freedesktop.org/standards/desktop-bookmarks" xmlns:mime="http://www.freedesktop.org/standards/shared-mime-info">
"#;

fn fill(home: &Path, count: usize) -> Result<PathBuf, Box<dyn Error>> {
    let directory = home.join(".local/share");
    fs::create_dir_all(&directory)?;
    let file = directory.join("recently-used.xbel");
    let bookmarks: String =
        (0..count).map(|number| BOOKMARK.replace("NUMBER", &number.to_string())).collect();
    fs::write(&file, format!("{HEAD}{bookmarks}</xbel>\n"))?;
    Ok(file)
}

/// How often each thing that recently-used-xbel does not model stands in a list.
fn kept(file: &Path) -> Result<[usize; 3], Box<dyn Error>> {
    let text = fs::read_to_string(file)?;
    Ok(["<title>", "<bookmark:group>", "<bookmark:private"].map(|part| text.matches(part).count()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let rounds: usize = words.next().map_or(Ok(100), |rounds| rounds.parse())?;
    let directory = PathBuf::from(words.next().unwrap_or_else(|| "target/replace".to_owned()));
    let directory = std::path::absolute(directory)?;
    for count in [100, 1000, 5000] {
        let (theirs, ours) = (directory.join("theirs"), directory.join("ours"));
        for home in [&theirs, &ours] {
            let _ = fs::remove_dir_all(home);
        }
        let (their_file, our_file) = (fill(&theirs, count)?, fill(&ours, count)?);
        let document = directory.join("document.odt");
        fs::write(&document, "x")?;
        // SAFETY: there is no other thread; the crate finds its file by this variable alone.
        unsafe { std::env::set_var("HOME", &theirs) };

        let clock = Arc::new(sys::clock::SystemClock::start());
        let mut recents = Recents::new(
            RecentsFiles::below(&ours),
            RememberingProgram::Ordinary,
            store::disk::real(),
            clock,
        );
        projection::project(&mut recents)?;
        let mut rows = [
            Row::new("recently-used-xbel, addition"),
            Row::new("ours, addition"),
            Row::new("ours, files of GTK and KDE"),
        ];
        for round in 0..rounds {
            let copy = directory.join(format!("document {}.odt", round % 10));
            fs::copy(&document, &copy)?;
            rows[0].measure(|| {
                recently_used_xbel::update_recently_used(
                    &copy,
                    "org.example.Writer".to_owned(),
                    "writer %u".to_owned(),
                    None,
                )
            })?;
            rows[1].measure(|| -> Result<(), Box<dyn Error>> {
                recents.add(&Addition {
                    uri: Uri::of_path(&copy)?,
                    mime: Some("application/vnd.oasis.opendocument.text".to_owned()),
                    groups: Vec::new(),
                    privacy: Privacy::Public,
                    application: "org.example.Writer".to_owned(),
                    exec: "writer %u".to_owned(),
                    at: recents.now(),
                })?;
                Ok(())
            })?;
            // Made by the daemon for many additions at once, here after each: nobody waits for it.
            rows[2].measure(|| projection::project(&mut recents))?;
        }
        println!("{count} documents in the list, {rounds} rounds:");
        print_rows(&rows);
        print_ratios(&rows[1], &rows[0]);
        print_ratios(&rows[2], &rows[0]);
        let ([their_titles, their_groups, their_private], [titles, groups, private]) =
            (kept(&their_file)?, kept(&our_file)?);
        println!("of {count} titles, groups and private marks:");
        println!(
            "  recently-used-xbel keeps {their_titles}, {their_groups} and {their_private}; ours {titles}, {groups} and {private}\n"
        );
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}
