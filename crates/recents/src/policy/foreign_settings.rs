//! The off switches and limits of others: KDE's configuration, GTK's settings, GNOME's keys in dconf; read again when a file changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gvdb::GvdbTable;
use gvdb::gvariant::VariantView;
use store::disk::{Disk, FileStat};

use super::super::RecentsFiles;

/// The largest file of settings that is read.
const MAX_BYTES: u64 = 16 << 20;
/// How many programs' own configuration is remembered.
const MOST_PROGRAMS: usize = 64;
const REMEMBER: &str = "/org/gnome/desktop/privacy/remember-recent-files";
const MAX_AGE: &str = "/org/gnome/desktop/privacy/recent-files-max-age";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A setting, and the file that contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignSetting {
    /// The file.
    pub path: PathBuf,
    /// The line, as `key=value`.
    pub text: String,
}

/// The settings of the desktops for one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProgramSwitches {
    /// The settings by which nothing is to be remembered.
    pub(super) off: Vec<ForeignSetting>,
    /// Whether documents in hidden folders are recorded, if a setting exists.
    pub(super) ignore_hidden: Option<(bool, ForeignSetting)>,
    /// How many links KDE keeps.
    pub(super) most_links: Option<(usize, ForeignSetting)>,
    /// How long entries are kept.
    pub(super) age: Option<(Duration, ForeignSetting)>,
}

/// A file as it was read last.
#[derive(Debug)]
struct Watched {
    path: PathBuf,
    stamp: Option<((u64, u64), u64, i128)>,
    lines: Vec<Line>,
}

/// A setting of a file.
#[derive(Debug)]
struct Line {
    key: &'static str,
    value: String,
    lock: Lock,
}

/// Whether files that count more may say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Open,
    Locked,
}

/// All files of settings.
#[derive(Debug)]
pub(super) struct Switches {
    kde: Vec<Watched>,
    /// `<program>rc`, by the program.
    programs: HashMap<String, Vec<Watched>>,
    gtk: [Vec<Watched>; 2],
    dconf: Vec<Watched>,
    config: Vec<PathBuf>,
}

impl Switches {
    pub(super) fn new(places: &RecentsFiles) -> Switches {
        // The one that counts least first.
        let mut config: Vec<PathBuf> = places.config_dirs.iter().rev().cloned().collect();
        config.push(places.config.clone());
        let each = |name: &str| config.iter().map(|dir| Watched::new(dir.join(name))).collect();
        let gtk = |version: &str| {
            let mut files: Vec<Watched> = each(&format!("{version}/settings.ini"));
            files.insert(0, Watched::new(Path::new("/etc").join(version).join("settings.ini")));
            files
        };
        Switches {
            kde: each("kdeglobals"),
            programs: HashMap::new(),
            gtk: [gtk("gtk-3.0"), gtk("gtk-4.0")],
            dconf: places.dconf.iter().rev().map(|path| Watched::new(path.clone())).collect(),
            config,
        }
    }

    /// Reads changed files, and returns the settings for a program.
    pub(super) fn ask(&mut self, disk: &dyn Disk, program: Option<&str>) -> ProgramSwitches {
        let mut said = ProgramSwitches::default();
        let mut kde = Effective::default();
        for file in &mut self.kde {
            kde.take(file.refreshed(disk, kde_lines));
        }
        if let Some(program) = program.and_then(component_of) {
            if self.programs.len() >= MOST_PROGRAMS && !self.programs.contains_key(program) {
                self.programs.clear();
            }
            let files = self.programs.entry(program.to_owned()).or_insert_with(|| {
                let name = format!("{program}rc");
                self.config.iter().map(|dir| Watched::new(dir.join(&name))).collect()
            });
            for file in files {
                kde.take(file.refreshed(disk, kde_lines));
            }
        }
        if let Some((value, setting)) = kde.get("UseRecent")
            && !is_true(value)
        {
            said.off.push(setting);
        }
        if let Some((value, setting)) = kde.get("MaxEntries")
            && let Ok(count) = value.trim().parse::<i64>()
        {
            match usize::try_from(count) {
                Ok(0) => said.off.push(setting),
                Ok(count) => said.most_links = Some((count, setting)),
                Err(_) => {}
            }
        }
        said.ignore_hidden =
            kde.get("IgnoreHidden").map(|(value, setting)| (is_true(value), setting));
        for version in &mut self.gtk {
            let mut gtk = Effective::default();
            for file in version {
                gtk.take(file.refreshed(disk, gtk_lines));
            }
            if let Some((value, setting)) = gtk.get("gtk-recent-files-enabled")
                && !is_true(value)
            {
                said.off.push(setting);
            }
            said.limit_days(gtk.get("gtk-recent-files-max-age"));
        }
        let mut dconf = Effective::default();
        for file in &mut self.dconf {
            dconf.take(file.refreshed(disk, dconf_lines));
        }
        if let Some((value, setting)) = dconf.get("remember-recent-files")
            && !is_true(value)
        {
            said.off.push(setting);
        }
        said.limit_days(dconf.get("recent-files-max-age"));
        said
    }
}

impl ProgramSwitches {
    /// Takes a number of days; negative ones are for ever, and none at all is off.
    fn limit_days(&mut self, said: Option<(&str, ForeignSetting)>) {
        let Some((value, setting)) = said else { return };
        let Some(days) = value.trim().parse::<i64>().ok().and_then(|d| u32::try_from(d).ok())
        else {
            return;
        };
        let age = DAY * days;
        if days == 0 {
            self.off.push(setting);
        } else if self.age.as_ref().is_none_or(|(known, _)| age < *known) {
            self.age = Some((age, setting));
        }
    }
}

impl Watched {
    fn new(path: PathBuf) -> Watched {
        Watched { path, stamp: None, lines: Vec::new() }
    }

    /// Reads the file again if it is another than before. One that cannot be read says nothing.
    fn refreshed(&mut self, disk: &dyn Disk, parse: fn(&[u8]) -> Vec<Line>) -> &Watched {
        let found = disk.stat(&self.path).ok().filter(FileStat::is_file);
        let stamp = found.map(|stat| (stat.identity, stat.len, stat.mtime_ns));
        if stamp != self.stamp {
            self.stamp = stamp;
            let is_small = found.is_some_and(|stat| stat.len <= MAX_BYTES);
            let bytes = is_small.then(|| disk.read(&self.path).ok()).flatten();
            self.lines = bytes.map(|bytes| parse(&bytes)).unwrap_or_default();
        }
        self
    }
}

/// The result of several files in ascending precedence.
#[derive(Default)]
struct Effective<'a>(HashMap<&'static str, (&'a Line, &'a Path)>);

impl<'a> Effective<'a> {
    fn take(&mut self, file: &'a Watched) {
        let locked: Vec<&str> = self
            .0
            .iter()
            .filter(|(_, (line, _))| line.lock == Lock::Locked)
            .map(|(key, _)| *key)
            .collect();
        for line in file.lines.iter().filter(|line| !locked.contains(&line.key)) {
            self.0.insert(line.key, (line, &file.path));
        }
    }

    fn get(&self, key: &str) -> Option<(&'a str, ForeignSetting)> {
        let (line, path) = self.0.get(key)?;
        let text = format!("{}={}", line.key, line.value);
        Some((&line.value, ForeignSetting { path: (*path).to_owned(), text }))
    }
}

/// Returns what KDE calls a program's configuration by: `kate` of `org.kde.kate`. Nothing else is part of a path.
fn component_of(program: &str) -> Option<&str> {
    let name = program.strip_suffix(".desktop").unwrap_or(program);
    let name = name.rsplit('.').next()?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-+".contains(&b);
    (!name.is_empty() && name.len() < 100 && name.bytes().all(is_plain)).then_some(name)
}

/// Reads what KConfig takes for yes.
fn is_true(value: &str) -> bool {
    matches!(&*value.trim().to_ascii_lowercase(), "true" | "on" | "yes" | "1")
}

/// Reads KDE's group; `[$i]` behind a file's, a group's or a key's name locks it.
fn kde_lines(text: &[u8]) -> Vec<Line> {
    const KEYS: [&str; 3] = ["UseRecent", "MaxEntries", "IgnoreHidden"];
    lines(text, "RecentDocuments", &KEYS)
}

fn gtk_lines(text: &[u8]) -> Vec<Line> {
    lines(text, "Settings", &["gtk-recent-files-enabled", "gtk-recent-files-max-age"])
}

fn lines(text: &[u8], group: &str, keys: &[&'static str]) -> Vec<Line> {
    let text = String::from_utf8_lossy(text);
    let mut found: Vec<Line> = Vec::new();
    let (mut is_inside, mut file_lock, mut group_lock) = (false, Lock::Open, Lock::Open);
    for line in text.lines().map(str::trim) {
        if line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            let (name, locks) = match line.strip_suffix("[$i]") {
                Some(name) => (name, Lock::Locked),
                None => (line, Lock::Open),
            };
            if name.is_empty() {
                file_lock = Lock::Locked;
                continue;
            }
            is_inside = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')) == Some(group);
            group_lock = locks;
        } else if is_inside && let Some((key, value)) = line.split_once('=') {
            let (key, own_lock) = match key.trim().strip_suffix("[$i]") {
                Some(key) => (key, Lock::Locked),
                None => (key.trim(), Lock::Open),
            };
            let is_locked = [own_lock, group_lock, file_lock].contains(&Lock::Locked);
            if let Some(key) = keys.iter().find(|known| **known == key) {
                found.retain(|line| line.key != *key);
                let lock = if is_locked { Lock::Locked } else { Lock::Open };
                found.push(Line { key, value: value.trim().to_owned(), lock });
            }
        }
    }
    found
}

/// Reads GNOME's two keys in a database, and whether they are locked there.
fn dconf_lines(bytes: &[u8]) -> Vec<Line> {
    let Ok(table) = GvdbTable::open(bytes) else { return Vec::new() };
    let locks = table.nested(".locks");
    let lock = |path: &str| match locks.is_some_and(|locks| locks.has(path)) {
        true => Lock::Locked,
        false => Lock::Open,
    };
    let value = |path: &str| Some(VariantView::inside(table.value(path)?, table.order()));
    let remember = value(REMEMBER).and_then(VariantView::as_bool).map(|on| on.to_string());
    let age = value(MAX_AGE).and_then(VariantView::as_i32).map(|days| days.to_string());
    let line =
        |key, path, value: Option<String>| Some(Line { key, value: value?, lock: lock(path) });
    let lines = [
        line("remember-recent-files", REMEMBER, remember),
        line("recent-files-max-age", MAX_AGE, age),
    ];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kdes_configuration_is_read_as_kconfig_does() {
        let text = b"UseRecent=1\n[Other]\nUseRecent=true\n[RecentDocuments]\n UseRecent = False \nMaxEntries[$i]=3\nMaxEntries=4\nrubbish\n[RecentDocuments][Sub]\nUseRecent=true\n";
        let lines = kde_lines(text);
        let read: Vec<_> = lines.iter().map(|l| (l.key, &*l.value, l.lock)).collect();
        assert_eq!(read, [("UseRecent", "False", Lock::Open), ("MaxEntries", "4", Lock::Open)]);
        let locked = kde_lines(b"[$i]\n[RecentDocuments]\nUseRecent=false\n");
        assert_eq!(locked[0].lock, Lock::Locked);
        let locked = kde_lines(b"[RecentDocuments][$i]\nUseRecent=false\n");
        assert_eq!(locked[0].lock, Lock::Locked);
        assert!(is_true("Yes") && is_true("on") && !is_true("maybe"));
    }

    #[test]
    fn only_a_plain_name_is_part_of_a_path() {
        assert_eq!(component_of("org.kde.kate"), Some("kate"));
        assert_eq!(component_of("okular.desktop"), Some("okular"));
        for hostile in ["", "..", "a/b", "../../x", "a\0"] {
            assert_eq!(component_of(hostile), None, "{hostile:?}");
        }
    }
}
