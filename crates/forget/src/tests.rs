//! Removing documents from our list and the shared one, with other writers beside and clocks that were set.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use ::settings::changeset::Changeset;
use recents::{RecentsFiles, RememberingProgram, writer};
use sys::clock::{Clock, SystemClock};

use super::*;

/// A service that nothing is asked of.
struct NoSettings;

impl SettingsService for NoSettings {
    fn change(
        &mut self,
        _: &str,
        _: &Changeset,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is in dconf".into())
    }
}

/// A clock that looks, whenever it is asked, whether a writer could begin and would still find a document.
#[derive(Debug)]
struct WriterBeside {
    clock: SystemClock,
    places: RecentsFiles,
    /// Whether the document was there, for each time at which one could begin; none while nobody looks.
    found: Mutex<Option<Vec<bool>>>,
}

impl Clock for WriterBeside {
    fn now(&self) -> SystemTime {
        if let Some(found) = &mut *self.found.lock().unwrap() {
            let lock = self.places.state.join("writer.lock");
            let may_begin = store::disk::real().own(&lock, Duration::ZERO).unwrap().is_some();
            let has = |path: &Path| {
                let text = std::fs::read(path).unwrap_or_default();
                String::from_utf8_lossy(&text).contains("/srv/gone")
            };
            if may_begin {
                found.push(has(&self.places.xbel) || has(&self.places.journal()));
            }
        }
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

fn recents(home: &Path, clock: Arc<dyn Clock>) -> Recents {
    let (places, disk) = (RecentsFiles::below(home), store::disk::real());
    Recents::new(places, RememberingProgram::Ordinary, disk, clock)
}

/// Writes the shared list as another program does, with documents `/srv/NAME` that were used at `used`.
#[expect(clippy::disallowed_methods, reason = "the test stands for another program")]
fn write_list(places: &RecentsFiles, names: &[&str], used: &str) {
    let bookmark = |name: &&str| {
        format!(
            "<bookmark href=\"file:///srv/{name}\" added=\"{used}\" modified=\"{used}\" visited=\"{used}\"><info><metadata owner=\"http://freedesktop.org\"><mime:mime-type type=\"text/plain\"/><bookmark:applications><bookmark:application name=\"viewer\" exec=\"viewer %u\" modified=\"{used}\" count=\"1\"/></bookmark:applications></metadata></info></bookmark>"
        )
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<xbel version=\"1.0\" xmlns:bookmark=\"http://www.freedesktop.org/standards/desktop-bookmarks\" xmlns:mime=\"http://www.freedesktop.org/standards/shared-mime-info\">{}</xbel>",
        names.iter().map(bookmark).collect::<String>()
    );
    std::fs::create_dir_all(places.xbel.parent().unwrap()).unwrap();
    std::fs::write(&places.xbel, text).unwrap();
}

/// Forgets what is selected, without trouble.
fn forget(recents: &mut Recents, selection: &Selection) {
    let survey = survey(recents);
    let chosen = survey.choose(selection);
    let troubles = remove(recents, &mut NoSettings, &survey, selection, &chosen);
    assert!(troubles.is_empty(), "{troubles:?}");
}

fn names(recents: &mut Recents) -> Vec<String> {
    let list = recents.list().unwrap();
    list.iter().map(|entry| entry.uri.as_str().rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn what_only_the_shared_list_has_with_a_time_to_come_is_forgotten() {
    let one = Selection {
        names: vec![DocumentName::of_uri(&Uri::of_path(Path::new("/srv/gone")).unwrap())],
        ..Selection::default()
    };
    for (selection, left) in [(one, &["other"][..]), (Selection::default(), &[][..])] {
        let home = tempfile::tempdir().unwrap();
        let mut recents = recents(home.path(), Arc::new(SystemClock::start()));
        write_list(&recents.places().clone(), &["gone", "other"], "2099-11-01T10:00:00Z");
        forget(&mut recents, &selection);
        writer::write(&mut recents).unwrap();
        assert_eq!(names(&mut recents), left);
        // A program that had it in memory writes it again.
        write_list(&recents.places().clone(), &["gone", "other"], "2099-11-01T10:00:00Z");
        writer::write(&mut recents).unwrap();
        assert_eq!(names(&mut recents), left);
    }
}

#[test]
fn no_writer_is_at_work_until_what_is_forgotten_is_in_neither_list() {
    let home = tempfile::tempdir().unwrap();
    let places = RecentsFiles::below(home.path());
    let (clock, found) = (SystemClock::start(), Mutex::default());
    let clock = Arc::new(WriterBeside { clock, places: places.clone(), found });
    let mut recents = recents(home.path(), clock.clone());
    write_list(&places, &["gone", "other"], "2026-11-01T10:00:00Z");
    writer::write(&mut recents).unwrap();
    // Another program uses it meanwhile.
    write_list(&places, &["gone", "other"], "2026-11-01T11:00:00Z");
    let everything = Selection::default();
    let survey = survey(&mut recents);
    let chosen = survey.choose(&everything);
    *clock.found.lock().unwrap() = Some(Vec::new());
    let troubles = remove(&mut recents, &mut NoSettings, &survey, &everything, &chosen);
    assert!(troubles.is_empty(), "{troubles:?}");
    let found = clock.found.lock().unwrap().take().unwrap();
    assert!(!found.contains(&true), "{found:?}");
    assert_eq!(names(&mut recents), [""; 0]);
    assert!(writer::lock_writers(&recents).is_ok(), "the next one may begin");
}
