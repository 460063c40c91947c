//! Queries of entries: by time, program, type, group and folder.

use std::path::{Path, PathBuf};

use super::policy::matches_name;
use super::{RecentEntry, RecentList, RecentTime};

/// A query; unset fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Last used then or later.
    pub since: Option<RecentTime>,
    /// Last used before.
    pub before: Option<RecentTime>,
    /// Opened by a program whose name matches this pattern, or the last part of it, as `kate` does of `org.kde.kate`.
    pub application: Option<String>,
    /// Of a type that matches this pattern.
    pub mime: Option<String>,
    /// Of this group.
    pub group: Option<String>,
    /// In this folder or below it, or this file itself.
    pub below: Option<PathBuf>,
    /// No more than these, the latest.
    pub most: Option<usize>,
}

impl Query {
    /// Returns the entries that match, the latest first.
    #[must_use]
    pub fn select<'a>(&self, list: &'a RecentList) -> Vec<&'a RecentEntry> {
        let mut found: Vec<&RecentEntry> =
            list.iter().filter(|entry| self.matches(entry)).collect();
        found.sort_by_key(|entry| std::cmp::Reverse(entry.last_used()));
        found.truncate(self.most.unwrap_or(usize::MAX));
        found
    }

    /// Returns whether an entry matches, however many others do.
    #[must_use]
    pub fn matches(&self, entry: &RecentEntry) -> bool {
        let when = entry.last_used();
        let is_in_time = self.since.is_none_or(|since| when >= since)
            && self.before.is_none_or(|before| when < before);
        let is_by = |pattern: &String| {
            entry.applications.iter().any(|application| is_called(&application.name, pattern))
        };
        is_in_time
            && self.application.as_ref().is_none_or(is_by)
            && self.mime.as_ref().is_none_or(|pattern| {
                entry.mime.as_ref().is_some_and(|mime| matches(pattern, mime))
            })
            && self.group.as_ref().is_none_or(|group| entry.groups.contains(group))
            && self.below.as_ref().is_none_or(|folder| is_below(entry, folder))
    }
}

/// Returns whether a program's name, or the last part of its identifier, matches a pattern, in small or capital letters.
#[must_use]
pub fn is_called(name: &str, pattern: &str) -> bool {
    matches(pattern, name) || matches(pattern, name.rsplit('.').next().unwrap_or_default())
}

fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_ascii_lowercase(), text.to_ascii_lowercase());
    matches_name(pattern.as_bytes(), text.as_bytes())
}

fn is_below(entry: &RecentEntry, folder: &Path) -> bool {
    entry.uri.to_path().is_some_and(|path| path.starts_with(folder))
}
