//! Limits of the fields of an entry: contents that every reader of the shared list accepts, and lengths that leave space for
//! the other entries.

use super::record::Addition;
use super::xbel::{MAX_SAID_BYTES, is_forbidden};
use super::{OpeningApplication, RecentEntry};

/// The most groups of one addition.
const MOST_ADDED_GROUPS: usize = 32;
/// The most groups of one entry.
const MOST_GROUPS: usize = 100;
/// The most applications of one entry.
const MOST_APPLICATIONS: usize = 100;
/// The longest MIME type, name of a program and group.
const MOST_NAME_BYTES: usize = 255;
/// The longest command line: as long as a path may be.
const MOST_EXEC_BYTES: usize = 4096;

/// Why a field of an addition cannot be remembered; nothing of the addition was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// It is empty, and a reader would leave it out.
    #[error("cannot remember {0} that is empty")]
    Empty(&'static str),
    /// It is too long.
    #[error("cannot remember {field} of {len} bytes: at most {most} are allowed")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest that is allowed.
        most: usize,
    },
    /// There are too many groups.
    #[error("cannot remember {0} groups of one document: at most {MOST_ADDED_GROUPS} are allowed")]
    TooManyGroups(usize),
    /// It has a character that no XML file can have: readers would refuse the whole list.
    #[error("cannot remember {field} with the character U+{:04X}: XML has no such character", u32::from(*character))]
    Character {
        /// Which field.
        field: &'static str,
        /// The first such character.
        character: char,
    },
}

impl Addition {
    /// Checks that every part of the list, and every program that reads it, can hold the addition.
    ///
    /// # Errors
    ///
    /// [`FieldError`], of the first field that cannot be held.
    pub fn check(&self) -> Result<(), FieldError> {
        let Addition { uri, mime, groups, application, exec, .. } = self;
        // `Uri` bounds the length.
        check_text("a URI", uri.as_str(), usize::MAX)?;
        check_name("a name of a program", application)?;
        check_text("a command line", exec, MOST_EXEC_BYTES)?;
        mime.as_deref().map_or(Ok(()), |mime| check_name("a MIME type", mime))?;
        groups.iter().try_for_each(|group| check_name("a group", group))?;
        if groups.len() > MOST_ADDED_GROUPS {
            return Err(FieldError::TooManyGroups(groups.len()));
        }
        Ok(())
    }

    /// Removes invalid fields, because an earlier version wrote records without a check. `None` if nothing is left.
    pub(super) fn cleaned(self) -> Option<Addition> {
        if self.check().is_ok() {
            return Some(self);
        }
        let Addition { uri, mime, mut groups, privacy, application, exec, at } = self;
        if uri.as_str().is_empty() || uri.as_str().contains(is_forbidden) {
            return None;
        }
        groups.truncate(MOST_ADDED_GROUPS);
        let name = |text: String| cleaned_text(text, MOST_NAME_BYTES);
        let groups = groups.into_iter().map(name).filter(|group| !group.is_empty()).collect();
        let mime = mime.map(name).filter(|mime| !mime.is_empty());
        let application = Some(name(application)).filter(|name| !name.is_empty());
        let application = application.unwrap_or_else(|| "unknown".to_owned());
        let exec = cleaned_text(exec, MOST_EXEC_BYTES);
        Some(Addition { uri, mime, groups, privacy, application, exec, at })
    }
}

impl RecentEntry {
    /// Returns how long all texts but the URI are together.
    pub(super) fn said_bytes(&self) -> usize {
        let texts = [&self.mime, &self.title, &self.description];
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        texts.into_iter().map(length).sum::<usize>()
            + self.groups.iter().map(String::len).sum::<usize>()
            + self.applications.iter().map(application_bytes).sum::<usize>()
    }

    /// Enforces the limits: drops the applications that were used the longest ago, and the last groups.
    pub(super) fn bound(&mut self) {
        self.groups.truncate(MOST_GROUPS);
        while self.applications.len() > MOST_APPLICATIONS {
            self.drop_oldest_application();
        }
        // What is longer is not read in the shared file.
        while self.said_bytes() > MAX_SAID_BYTES {
            if self.applications.len() > 1 {
                self.drop_oldest_application();
            } else if self.groups.pop().is_none()
                && self.description.take().is_none()
                && self.title.take().is_none()
                && self.mime.take().is_none()
            {
                self.applications.clear();
            }
        }
    }

    fn drop_oldest_application(&mut self) {
        let numbered = self.applications.iter().enumerate();
        let oldest = numbered.min_by_key(|(_, one)| (one.modified, &one.name));
        if let Some(at) = oldest.map(|(at, _)| at) {
            self.applications.remove(at);
        }
    }

    /// Takes out characters that the shared file cannot have: an earlier version wrote records without a check. `None` if
    /// the URI has one.
    pub(super) fn cleaned(mut self) -> Option<RecentEntry> {
        if self.uri.as_str().is_empty() || self.uri.as_str().contains(is_forbidden) {
            return None;
        }
        let clean = |text: &mut String| {
            if text.contains(is_forbidden) {
                *text = cleaned_text(std::mem::take(text), usize::MAX);
            }
        };
        let RecentEntry { mime, groups, title, description, applications, .. } = &mut self;
        [mime, title, description].into_iter().flatten().for_each(clean);
        groups.iter_mut().for_each(clean);
        groups.retain(|group| !group.is_empty());
        for OpeningApplication { name, exec, .. } in applications.iter_mut() {
            clean(name);
            clean(exec);
        }
        applications.retain(|application| !application.name.is_empty());
        Some(self)
    }
}

fn application_bytes(application: &OpeningApplication) -> usize {
    application.name.len() + application.exec.len()
}

fn check_name(field: &'static str, text: &str) -> Result<(), FieldError> {
    check_text(field, text, MOST_NAME_BYTES)?;
    // A reader takes the blanks around a group for none of it.
    if text.trim().is_empty() { Err(FieldError::Empty(field)) } else { Ok(()) }
}

fn check_text(field: &'static str, text: &str, most: usize) -> Result<(), FieldError> {
    if text.len() > most {
        return Err(FieldError::TooLong { field, len: text.len(), most });
    }
    match text.chars().find(|character| is_forbidden(*character)) {
        Some(character) => Err(FieldError::Character { field, character }),
        None => Ok(()),
    }
}

/// Takes out the characters that XML cannot have, and cuts the text at a length.
fn cleaned_text(text: String, most: usize) -> String {
    let mut clean = text;
    clean.retain(|character| !is_forbidden(character));
    while clean.len() > most {
        clean.pop();
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JournalRecord, Privacy, RecentList, RecentTime, Uri};

    fn addition() -> Addition {
        Addition {
            uri: Uri::exact("file:///a").unwrap(),
            mime: Some("text/plain".into()),
            groups: vec!["Office".into()],
            privacy: Privacy::Public,
            application: "org.kde.kate".into(),
            exec: "kate %U".into(),
            at: RecentTime(1),
        }
    }

    #[test]
    fn a_field_that_cannot_be_held_is_named() {
        let long = |field, len, most| Err(FieldError::TooLong { field, len, most });
        let check = |change: &dyn Fn(&mut Addition)| {
            let mut changed = addition();
            change(&mut changed);
            changed.check()
        };
        assert_eq!(check(&|_| {}), Ok(()));
        let group = "g".repeat(70_000);
        assert_eq!(check(&|a| a.groups = vec![group.clone()]), long("a group", 70_000, 255));
        assert_eq!(check(&|a| a.mime = Some("x".repeat(256))), long("a MIME type", 256, 255));
        let exec = || "x".repeat(4097);
        assert_eq!(check(&|a| a.exec = exec()), long("a command line", 4097, 4096));
        let name = "a name of a program";
        assert_eq!(check(&|a| a.application = exec()), long(name, 4097, 255));
        assert_eq!(check(&|a| a.application.clear()), Err(FieldError::Empty(name)));
        assert_eq!(check(&|a| a.mime = Some("\n".into())), Err(FieldError::Empty("a MIME type")));
        let many = check(&|a| a.groups = vec!["g".into(); 33]).unwrap_err();
        assert_eq!(
            many.to_string(),
            "cannot remember 33 groups of one document: at most 32 are allowed"
        );
        let said = check(&|a| a.groups[0].push('\u{2}')).unwrap_err().to_string();
        assert_eq!(
            said,
            "cannot remember a group with the character U+0002: XML has no such character"
        );
    }

    #[test]
    fn records_of_an_earlier_version_are_cleaned_when_they_are_read() {
        let mut list = RecentList::default();
        let mut bad = addition();
        bad.groups = vec!["\u{2}".into(), "g".repeat(70_000), "a\u{fffe}b".into()];
        bad.application = "\0".into();
        bad.exec = "\u{ffff}x".repeat(5000);
        list.apply(JournalRecord::Add(bad.clone()));
        bad.uri = Uri::exact("file:///\u{1}").unwrap();
        list.apply(JournalRecord::Add(bad));
        let entries: Vec<&RecentEntry> = list.iter().collect();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].groups, ["g".repeat(255), "ab".into()]);
        assert_eq!(entries[0].applications[0].name, "unknown");
        assert_eq!(entries[0].applications[0].exec, "x".repeat(4096));
        assert!(entries[0].clone().cleaned().as_ref() == Some(entries[0]));
    }

    #[test]
    fn however_often_a_document_is_added_its_entry_can_be_read_in_the_shared_file() {
        let mut list = RecentList::default();
        for number in 0..2000 {
            let mut addition = addition();
            addition.groups =
                (0..32).map(|n| format!("{number}-{n}-{}", "g".repeat(240))).collect();
            addition.application = format!("{number}");
            addition.exec = "x".repeat(4096);
            addition.at = RecentTime(number);
            list.apply(JournalRecord::Add(addition));
        }
        let entry = list.iter().next().unwrap();
        assert!(entry.said_bytes() <= MAX_SAID_BYTES, "{}", entry.said_bytes());
        assert_eq!(entry.applications.last().unwrap().name, "1999", "the last stays");
        let record = JournalRecord::Put(entry.clone());
        assert_eq!(JournalRecord::decode(&record.encode()), Some(record));
    }
}
