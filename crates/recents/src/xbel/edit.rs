//! Changes to a document as cuts and pastes in its text, so that everything else stays byte for byte.

use std::ops::Range;

use quick_xml::reader::Reader;

use super::bookmark::{Damage, HasInside, Inside, OWNER};
use super::document::{Bookmark, BookmarkChange, Closing, Condition, Source, XbelDocument};
use super::markup::{ElementKind, Names, attribute, attributes, escape, head, tag_name, text_of};
use super::stamp;
use crate::{OpeningApplication, Privacy, RecentEntry};

/// What replaces which parts of a text.
#[derive(Debug, Default)]
struct Splices(Vec<(Range<usize>, String)>);

impl Splices {
    fn put(&mut self, place: Range<usize>, text: impl Into<String>) {
        self.0.push((place, text.into()));
    }

    /// Makes the text that results. Of places that begin together the one that was put first comes first.
    fn apply(mut self, text: &str) -> String {
        self.0.sort_by_key(|(place, _)| place.start);
        let more: usize = self.0.iter().map(|(_, new)| new.len()).sum();
        let mut to = String::with_capacity(text.len() + more);
        let mut at = 0;
        for (place, new) in self.0 {
            // Of two cuts that overlap each takes what the other left.
            to.push_str(text.get(at..place.start).unwrap_or_default());
            to.push_str(&new);
            at = at.max(place.end);
        }
        to.push_str(text.get(at..).unwrap_or_default());
        to
    }
}

impl XbelDocument {
    /// Returns the text with each bookmark changed as `change` says and with `added` behind them; `None` if that is
    /// the text as it was read.
    #[must_use]
    pub fn edit<'a>(
        &self,
        change: impl FnMut(&Bookmark) -> BookmarkChange<'a>,
        added: impl IntoIterator<Item = &'a RecentEntry>,
    ) -> Option<String> {
        edit(self, change, added)
    }
}

/// Changes a document; `None` if nothing changes.
fn edit<'a>(
    document: &XbelDocument,
    mut change: impl FnMut(&Bookmark) -> BookmarkChange<'a>,
    added: impl IntoIterator<Item = &'a RecentEntry>,
) -> Option<String> {
    let XbelDocument { text, names, bookmarks, frame, .. } = document;
    let mut splices = Splices::default();
    for bookmark in bookmarks {
        let place = bookmark.place.clone();
        match (change(bookmark), bookmark.source, bookmark.entry()) {
            (BookmarkChange::Keep, Source::Text, _)
            | (BookmarkChange::Remove, Source::Entry, _) => {}
            (BookmarkChange::Set(entry), Source::Entry, _)
            | (BookmarkChange::Keep, Source::Entry, Some(entry)) => {
                splices.put(place, fresh(entry, names));
            }
            (BookmarkChange::Keep, Source::Entry, None) => {}
            (BookmarkChange::Remove, Source::Text, _) => {
                splices.put(blank_before(text, place.start)..place.end, "")
            }
            (BookmarkChange::Set(entry), Source::Text, _) => {
                let old = &text[place.clone()];
                let new = rewrite(old, entry, names).unwrap_or_else(|Damage| fresh(entry, names));
                if new != old {
                    splices.put(place, new);
                }
            }
        }
    }
    let behind: String = added.into_iter().map(|entry| fresh(entry, names)).collect();
    if splices.0.is_empty() && behind.is_empty() && document.condition() == Condition::Whole {
        return None;
    }
    for hole in &frame.holes {
        splices.put(blank_before(text, hole.start)..hole.end, "");
    }
    match &frame.root {
        Some(root) => {
            let tag = &text[root.clone()];
            let end = root.start + tag_name(tag).len();
            // What is unbound may be one of those that are missing.
            let (missing, unbound) = (Names::missing(tag), Names::unbound(text));
            let unbound = if missing.is_empty() { unbound } else { without(&unbound, &missing) };
            let has_version = attribute(tag, "version").is_some();
            let version = if has_version { "" } else { " version=\"1.0\"" };
            splices.put(end..end, version.to_owned() + &missing + &unbound);
        }
        None => {
            let unbound = without(&Names::unbound(text), &head());
            splices.0.insert(0, (0..0, head().replacen("\n>", &format!("{unbound}\n>"), 1)));
        }
    }
    let end = frame.end;
    match frame.closing {
        Closing::Written => {
            let at = blank_before(text, end);
            splices.put(at..at, behind);
        }
        Closing::Empty => splices.put(end - 2..end, format!(">{behind}\n</xbel>")),
        Closing::Missing => {
            splices.put(blank_before(text, end)..text.len(), format!("{behind}\n</xbel>\n"))
        }
    }
    Some(splices.apply(text))
}

/// Returns the declarations that are not among others.
fn without(declarations: &str, others: &str) -> String {
    let each = declarations.split_inclusive("\" ").map(str::trim);
    each.filter(|one| !one.is_empty() && !others.contains(one))
        .map(|one| format!(" {one}"))
        .collect()
}

/// Returns where the white space in front of a place begins.
fn blank_before(text: &str, at: usize) -> usize {
    text[..at].trim_end_matches(|c: char| c.is_ascii_whitespace()).len()
}

/// Lines of new elements, each with how deep it is below the first.
#[derive(Debug, Default)]
struct Lines(Vec<(usize, String)>);

impl Lines {
    fn push(&mut self, depth: usize, text: String) {
        self.0.push((depth, text));
    }

    fn nest(&mut self, depth: usize, lines: Lines) {
        self.0.extend(lines.0.into_iter().map(|(below, text)| (depth + below, text)));
    }

    /// Puts the lines one below the other, each behind a line break and `indent`.
    fn below(&self, indent: &str) -> String {
        let mut to = String::new();
        for (depth, text) in &self.0 {
            to.push('\n');
            to.push_str(indent);
            (0..*depth).for_each(|_| to.push_str("  "));
            to.push_str(text);
        }
        to
    }

    fn in_a_row(&self) -> String {
        self.0.iter().map(|(_, text)| &**text).collect()
    }
}

/// Returns the text of a new bookmark, with the line break in front of it.
fn fresh(entry: &RecentEntry, names: &Names) -> String {
    let mut lines = Lines::default();
    lines.push(
        0,
        format!(
            "<bookmark href=\"{}\" added=\"{}\" modified=\"{}\" visited=\"{}\">",
            escape(entry.uri.as_str()),
            stamp::write(entry.added),
            stamp::write(entry.modified),
            stamp::write(entry.visited)
        ),
    );
    if let Some(title) = &entry.title {
        lines.push(1, format!("<title>{}</title>", escape(title)));
    }
    if let Some(description) = &entry.description {
        lines.push(1, format!("<desc>{}</desc>", escape(description)));
    }
    lines.nest(1, info(entry, names));
    lines.push(0, "</bookmark>".into());
    lines.below("  ")
}

fn info(entry: &RecentEntry, names: &Names) -> Lines {
    let mut lines = Lines::default();
    lines.push(0, "<info>".into());
    lines.nest(1, metadata(entry, names));
    lines.push(0, "</info>".into());
    lines
}

fn metadata(entry: &RecentEntry, names: &Names) -> Lines {
    let mut lines = Lines::default();
    lines.push(0, format!("<metadata owner=\"{OWNER}\">"));
    if let Some(mime) = &entry.mime {
        lines.push(1, mime_type(mime, names));
    }
    if !entry.groups.is_empty() {
        lines.nest(1, groups(&entry.groups, names));
    }
    if !entry.applications.is_empty() {
        lines.nest(1, applications(&entry.applications, names));
    }
    if entry.privacy == Privacy::Private {
        lines.push(1, private(names));
    }
    lines.push(0, "</metadata>".into());
    lines
}

fn mime_type(mime: &str, names: &Names) -> String {
    format!("<{}:mime-type type=\"{}\"/>", names.mime(), escape(mime))
}

fn private(names: &Names) -> String {
    format!("<{}:private/>", names.bookmark())
}

fn group(group: &str, names: &Names) -> String {
    let prefix = names.bookmark();
    format!("<{prefix}:group>{}</{prefix}:group>", escape(group))
}

fn groups(all: &[String], names: &Names) -> Lines {
    let prefix = names.bookmark();
    let mut lines = Lines::default();
    lines.push(0, format!("<{prefix}:groups>"));
    all.iter().for_each(|one| lines.push(1, group(one, names)));
    lines.push(0, format!("</{prefix}:groups>"));
    lines
}

fn application(application: &OpeningApplication, names: &Names) -> String {
    format!(
        "<{}:application name=\"{}\" exec=\"{}\" modified=\"{}\" count=\"{}\"/>",
        names.bookmark(),
        escape(&application.name),
        escape(&application.exec),
        stamp::write(application.modified),
        application.count
    )
}

fn applications(all: &[OpeningApplication], names: &Names) -> Lines {
    let prefix = names.bookmark();
    let mut lines = Lines::default();
    lines.push(0, format!("<{prefix}:applications>"));
    all.iter().for_each(|one| lines.push(1, application(one, names)));
    lines.push(0, format!("</{prefix}:applications>"));
    lines
}

/// Changes the text of a bookmark to say what an entry says; what the entry does not speak of stays.
fn rewrite(old: &str, entry: &RecentEntry, names: &Names) -> Result<String, Damage> {
    let mut reader = Reader::from_str(old);
    let inside = Inside::new(old, &mut reader, names);
    let mut rewriting = Rewriting { old, entry, names, inside, splices: Splices::default() };
    rewriting.bookmark()?;
    let Rewriting { splices, .. } = rewriting;
    Ok(splices.apply(old))
}

/// A bookmark while its text is changed.
struct Rewriting<'t, 'r> {
    old: &'t str,
    entry: &'t RecentEntry,
    names: &'r Names,
    inside: Inside<'t, 'r>,
    splices: Splices,
}

impl Rewriting<'_, '_> {
    fn bookmark(&mut self) -> Result<(), Damage> {
        let entry = self.entry;
        let (tag, has_inside) = self.inside.child()?.ok_or(Damage)?;
        for (name, time) in
            [("added", entry.added), ("modified", entry.modified), ("visited", entry.visited)]
        {
            self.set(&tag, 1, name, &stamp::write(time), |value| stamp::read(value) == Some(time));
        }
        let start = self.inside.position();
        if has_inside == HasInside::No {
            self.splices.put(
                start - 2..start,
                format!(">{}\n  </bookmark>", info(entry, self.names).below("    ")),
            );
            return Ok(());
        }
        let mut title = entry.title.as_deref();
        let mut description = entry.description.as_deref();
        let mut has_info = false;
        while let Some((tag, has_inside)) = self.inside.child()? {
            let name = tag.name().0;
            match (name, has_inside) {
                ("info", HasInside::Yes) if !has_info => {
                    has_info = true;
                    self.info()?;
                }
                ("title" | "desc", HasInside::Yes) => {
                    let wanted = if name == "title" { &mut title } else { &mut description };
                    let wanted = wanted.take();
                    self.text(wanted)?;
                }
                ("title" | "desc", HasInside::No) => {
                    let wanted = if name == "title" { &mut title } else { &mut description };
                    if let Some(text) = wanted.take() {
                        let place = self.inside.tag_at()..self.inside.position();
                        self.splices.put(place, format!("<{name}>{}</{name}>", escape(text)));
                    }
                }
                _ => self.inside.skip(has_inside)?,
            }
        }
        let mut first = Lines::default();
        if let Some(title) = title {
            first.push(0, format!("<title>{}</title>", escape(title)));
        }
        if let Some(description) = description {
            first.push(0, format!("<desc>{}</desc>", escape(description)));
        }
        self.splices.put(start..start, first.below("    "));
        if !has_info {
            self.before_end(&info(entry, self.names));
        }
        Ok(())
    }

    fn info(&mut self) -> Result<(), Damage> {
        let mut has_metadata = false;
        while let Some((tag, has_inside)) = self.inside.child()? {
            let is_ours = tag.name().0 == "metadata"
                && attribute(&tag, "owner").is_some_and(|owner| owner == OWNER);
            if is_ours && has_inside == HasInside::Yes && !has_metadata {
                has_metadata = true;
                self.metadata()?;
            } else {
                self.inside.skip(has_inside)?;
            }
        }
        if !has_metadata {
            self.before_end(&metadata(self.entry, self.names));
        }
        Ok(())
    }

    fn metadata(&mut self) -> Result<(), Damage> {
        let entry = self.entry;
        let mut mime = entry.mime.as_deref();
        let mut wanted_groups = entry.groups.clone();
        let mut wanted_applications: Vec<&OpeningApplication> = entry.applications.iter().collect();
        let mut is_private = false;
        while let Some((tag, has_inside)) = self.inside.child()? {
            let at = self.inside.tag_at();
            match self.names.kind(tag.name().0) {
                ElementKind::MimeType => {
                    if let Some(mime) = mime.take() {
                        self.set(&tag, at + 1, "type", mime, |value| value == mime);
                    }
                    self.inside.skip(has_inside)?;
                }
                ElementKind::Groups if has_inside == HasInside::Yes => {
                    self.groups(&mut wanted_groups)?
                }
                ElementKind::Applications if has_inside == HasInside::Yes => {
                    self.applications(&mut wanted_applications)?;
                }
                ElementKind::Private => {
                    is_private = true;
                    self.inside.skip(has_inside)?;
                    if entry.privacy == Privacy::Public {
                        let place = blank_before(self.old, at)..self.inside.position();
                        self.splices.put(place, "");
                    }
                }
                _ => self.inside.skip(has_inside)?,
            }
        }
        let mut missing = Lines::default();
        if let Some(mime) = mime {
            missing.push(0, mime_type(mime, self.names));
        }
        if !wanted_groups.is_empty() {
            missing.nest(0, groups(&wanted_groups, self.names));
        }
        if !wanted_applications.is_empty() {
            let all: Vec<_> = wanted_applications.into_iter().cloned().collect();
            missing.nest(0, applications(&all, self.names));
        }
        if entry.privacy == Privacy::Private && !is_private {
            missing.push(0, private(self.names));
        }
        self.before_end(&missing);
        Ok(())
    }

    /// Adds the groups that are wanted and not there. Those that are wanted afterwards are none.
    fn groups(&mut self, wanted: &mut Vec<String>) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.inside.child()? {
            let start = self.inside.position();
            self.inside.skip(has_inside)?;
            if self.names.kind(tag.name().0) == ElementKind::Group && has_inside == HasInside::Yes {
                let text = text_of(&self.old[start..self.inside.tag_at()]);
                wanted.retain(|group| text.as_deref() != Some(&**group));
            }
        }
        let mut lines = Lines::default();
        wanted.drain(..).for_each(|one| lines.push(0, group(&one, self.names)));
        self.before_end(&lines);
        Ok(())
    }

    /// Brings the applications up to date and adds those that are not there.
    fn applications(&mut self, wanted: &mut Vec<&OpeningApplication>) -> Result<(), Damage> {
        while let Some((tag, has_inside)) = self.inside.child()? {
            let at = self.inside.tag_at() + 1;
            self.inside.skip(has_inside)?;
            if self.names.kind(tag.name().0) != ElementKind::Application {
                continue;
            }
            let name = attribute(&tag, "name");
            let Some(found) = wanted.iter().position(|one| name.as_deref() == Some(&*one.name))
            else {
                continue;
            };
            let OpeningApplication { exec, count, modified, .. } = wanted.remove(found);
            let time = stamp::write(*modified);
            self.set(&tag, at, "exec", exec, |value| value == exec);
            self.set(&tag, at, "modified", &time, |value| stamp::read(value) == Some(*modified));
            self.set(&tag, at, "count", &count.to_string(), |value| value.parse() == Ok(*count));
        }
        let mut lines = Lines::default();
        wanted.drain(..).for_each(|one| lines.push(0, application(one, self.names)));
        self.before_end(&lines);
        Ok(())
    }

    /// Replaces the text of an element, up to whose end it reads.
    fn text(&mut self, wanted: Option<&str>) -> Result<(), Damage> {
        let start = self.inside.position();
        self.inside.skip(HasInside::Yes)?;
        let place = start..self.inside.tag_at();
        if let Some(wanted) = wanted
            && text_of(&self.old[place.clone()]).as_deref() != Some(wanted)
        {
            self.splices.put(place, escape(wanted));
        }
        Ok(())
    }

    /// Sets an attribute of a tag whose text begins at `at`, unless its value is as good as the new one.
    fn set(
        &mut self,
        tag: &str,
        at: usize,
        name: &str,
        value: &str,
        is_same: impl Fn(&str) -> bool,
    ) {
        match attributes(tag).find(|attribute| attribute.name == name) {
            Some(attribute) if attribute.value().is_some_and(|value| is_same(&value)) => {}
            Some(attribute) => {
                let place = attribute.place();
                self.splices.put(at + place.start..at + place.end, escape(value));
            }
            None => {
                // Behind the name, where no damage can be before it.
                let end = at + tag_name(tag).len();
                self.splices.put(end..end, format!(" {name}=\"{}\"", escape(value)));
            }
        }
    }

    /// Adds lines in front of the end tag that was just read, in its own manner.
    fn before_end(&mut self, lines: &Lines) {
        if lines.0.is_empty() {
            return;
        }
        let end = self.inside.tag_at();
        let blank = blank_before(self.old, end);
        match self.old[blank..end].rfind('\n') {
            Some(line) => {
                let indent = format!("{}  ", &self.old[blank + line + 1..end]);
                self.splices.put(blank..blank, lines.below(&indent));
            }
            None => self.splices.put(end..end, lines.in_a_row()),
        }
    }
}
