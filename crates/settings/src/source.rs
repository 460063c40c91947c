//! Sources: the databases of a profile, opened for reading and opened again when they were replaced.

use std::hint::black_box;
use std::path::{Path, PathBuf};

use gvdb::ByteOrder;
use gvdb::gvariant::VariantView;
use gvdb::{GvdbTable, Layout, OpenError};
use store::generation::Flag;
use sys::map::Map;
use sys::regular_file;

use super::profile::{Description, SettingsEnvironment, said};

/// One database of a profile.
///
/// Whether it has to be opened again is one load from memory while nothing changes.
#[derive(Debug)]
pub struct ProfileDatabase {
    description: Description,
    path: PathBuf,
    /// The flag file of a `user-db`.
    flag_path: Option<PathBuf>,
    flag: Option<Flag>,
    open: Option<Open>,
    warned: bool,
}

#[derive(Debug)]
struct Open {
    map: Map,
    order: ByteOrder,
    /// Where the table is; a file whose header leads to no table is an empty database, as it is for dconf's readers.
    layout: Option<Layout>,
    /// There is a `.locks` table, so that each look-up has to ask it.
    has_locks: bool,
}

/// What became of a source when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refreshed {
    /// It is as it was.
    Same,
    /// It was opened, opened again, or is gone.
    Changed,
}

impl ProfileDatabase {
    /// Describes a source; nothing is opened before [`ProfileDatabase::refresh`].
    #[must_use]
    pub fn new(description: Description, environment: &SettingsEnvironment) -> ProfileDatabase {
        let path = description.file(environment);
        let flag_path = match &description {
            Description::User(name) => Some(environment.runtime_dir.join("dconf").join(name)),
            Description::Service(_) | Description::System(_) | Description::File(_) => None,
        };
        ProfileDatabase { description, path, flag_path, flag: None, open: None, warned: false }
    }

    /// Returns what the profile says of the source.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the database was replaced since it was opened, or could not be opened.
    #[must_use]
    #[inline]
    pub fn is_stale(&self) -> bool {
        match (&self.description, &self.open) {
            (Description::User(_), _) => self.flag.as_ref().is_none_or(Flag::is_raised),
            (_, None) => true,
            (Description::File(_), Some(_)) => false,
            // Whoever replaces such a file writes zeros over the signature of the old one. The mapping is private and
            // never written to, so it shows that; nothing may keep the byte from being loaded again each time.
            (Description::System(_) | Description::Service(_), Some(open)) => {
                black_box(open.map.bytes()).first().is_none_or(|&byte| byte == 0)
            }
        }
    }

    /// Opens the database again if it was replaced.
    ///
    /// `create` asks the service to make the file of a `service-db` that is missing. `warn` is told, once for each
    /// source, why a file cannot be opened; that a user has no settings yet is no reason.
    pub fn refresh(
        &mut self,
        create: &mut dyn FnMut(&Description),
        warn: &mut dyn FnMut(String),
    ) -> Refreshed {
        if !self.is_stale() {
            return Refreshed::Same;
        }
        let was_open = self.open.take().is_some();
        if let Some(path) = &self.flag_path {
            // The old flag goes before the new one comes, and that before the database is opened: a change that is
            // published in between raises the new flag.
            self.flag = None;
            self.flag = Some(Flag::arm(path));
        }
        let mut opened = open(&self.path);
        if opened.is_err() && matches!(self.description, Description::Service(_)) {
            create(&self.description);
            opened = open(&self.path);
        }
        match opened {
            Ok(open) => self.open = Some(open),
            Err(failure) => {
                // A user without settings has no file.
                let is_usual =
                    failure.is_missing && matches!(self.description, Description::User(_));
                if !self.warned && !is_usual {
                    self.warned = true;
                    let (path, why) = (self.path.display(), failure.why);
                    warn(format!(
                        "unable to open file '{path}': {why}; expect degraded performance"
                    ));
                }
            }
        }
        if was_open || self.open.is_some() { Refreshed::Changed } else { Refreshed::Same }
    }

    /// Returns the table, if there is a database.
    #[must_use]
    #[inline]
    pub fn table(&self) -> Option<GvdbTable<'_>> {
        let open = self.open.as_ref()?;
        open.layout?.attach(open.map.bytes())
    }

    /// Returns the value at a place of the file where one was found since the file was opened.
    #[inline]
    pub(super) fn value_at(&self, start: u32, end: u32) -> Option<VariantView<'_>> {
        let open = self.open.as_ref()?;
        Some(VariantView::inside(open.map.bytes().get(start as usize..end as usize)?, open.order))
    }

    /// Returns where a value is in the file.
    pub(super) fn place_of(&self, value: &[u8]) -> Option<(u32, u32)> {
        let start =
            value.as_ptr().addr().checked_sub(self.open.as_ref()?.map.bytes().as_ptr().addr())?;
        Some((u32::try_from(start).ok()?, u32::try_from(start + value.len()).ok()?))
    }

    /// Returns whether this source locks a key for the sources before it.
    #[must_use]
    #[inline]
    pub fn locks(&self, key: &str, hash: u32) -> bool {
        match &self.open {
            Some(open) if open.has_locks => {
                self.lock_table().is_some_and(|locks| locks.value_with_hash(hash, key).is_some())
            }
            _ => false,
        }
    }

    /// Returns the locked keys, in no order.
    #[must_use]
    pub(crate) fn locked_keys(&self) -> Vec<String> {
        let Some(locks) = self.lock_table() else { return Vec::new() };
        locks.entries().map(|(key, _)| key).collect()
    }

    fn lock_table(&self) -> Option<GvdbTable<'_>> {
        self.table()?.nested(LOCKS)
    }
}

/// The nested table whose keys are locked.
const LOCKS: &str = ".locks";

/// Why a database cannot be opened.
struct OpenFailure {
    /// Why, in the words of `dconf`.
    why: String,
    /// Whether there is no such file.
    is_missing: bool,
}

impl From<String> for OpenFailure {
    fn from(why: String) -> OpenFailure {
        OpenFailure { why, is_missing: false }
    }
}

/// Opens a database.
fn open(path: &Path) -> Result<Open, OpenFailure> {
    let shown = path.display();
    let file = regular_file::open(path).map_err(|error| OpenFailure {
        why: format!("Failed to open file “{shown}”: open() failed: {}", said(&error)),
        is_missing: error.kind() == std::io::ErrorKind::NotFound,
    })?;
    let map = Map::of(&file).map_err(|error| {
        format!("Failed to map {shown}' {shown}': mmap() failed: {}", said(&error))
    })?;
    let (order, layout, has_locks) = match GvdbTable::open(map.bytes()) {
        Ok(table) => (table.order(), Some(table.layout()), table.nested(LOCKS).is_some()),
        Err(OpenError::NoTable) => (ByteOrder::NATIVE, None, false),
        Err(_) => return Err(format!("{shown}: invalid gvdb header").into()),
    };
    Ok(Open { map, order, layout, has_locks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gvdb::gvariant::Variant;
    use gvdb::{self, Image};

    fn environment(root: &Path) -> SettingsEnvironment {
        SettingsEnvironment {
            profile: None,
            config_home: root.join("config"),
            runtime_dir: root.join("run"),
            data_dirs: Vec::new(),
            sysconf_dir: root.join("etc"),
            mandatory_dir: root.join("mandatory"),
            uid: 0,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
    fn replace(path: &Path, keys: &[(&str, i32)], locks: &[&str]) {
        let values: Vec<_> =
            keys.iter().map(|(key, value)| (*key, Variant::from(*value))).collect();
        let entries = values.iter().map(|(key, value)| (*key, value.as_bytes()));
        let image = gvdb::write(entries, &Image { locks, generation: None }).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let temp = path.with_extension("new");
        std::fs::write(&temp, image).unwrap();
        std::fs::rename(temp, path).unwrap();
    }

    fn refresh(source: &mut ProfileDatabase) -> (Refreshed, Vec<String>) {
        let mut warnings = Vec::new();
        let refreshed = source.refresh(&mut |_| (), &mut |warning| warnings.push(warning));
        (refreshed, warnings)
    }

    fn value(source: &ProfileDatabase, key: &str) -> Option<i32> {
        let bytes = source.table()?.value(key)?;
        gvdb::gvariant::VariantView::inside(bytes, source.table()?.order()).as_i32()
    }

    #[test]
    fn a_user_database_is_opened_again_when_its_flag_is_raised() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        std::fs::create_dir(&environment.runtime_dir).unwrap();
        let mut source = ProfileDatabase::new(Description::User("user".into()), &environment);
        assert!(source.is_stale());
        assert_eq!(refresh(&mut source), (Refreshed::Same, vec![]), "missing is no reason to warn");
        assert!(!source.is_stale(), "the flag tells when it comes to be");
        replace(source.path(), &[("/a", 1)], &[]);
        assert_eq!(value(&source, "/a"), None);
        store::generation::raise(&dir.path().join("run/dconf/user")).unwrap();
        assert_eq!(refresh(&mut source).0, Refreshed::Changed);
        assert_eq!(value(&source, "/a"), Some(1));
        assert_eq!(refresh(&mut source).0, Refreshed::Same);
    }

    #[test]
    fn a_system_database_is_opened_again_when_its_old_file_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        let mut source = ProfileDatabase::new(Description::System("site".into()), &environment);
        let (refreshed, warnings) = refresh(&mut source);
        assert_eq!(refreshed, Refreshed::Same);
        let path = source.path().to_owned();
        let shown = path.display();
        assert_eq!(
            warnings,
            [format!(
                "unable to open file '{shown}': Failed to open file “{shown}”: open() failed: No such file or \
                 directory; expect degraded performance"
            )]
        );
        assert_eq!(refresh(&mut source).1, Vec::<String>::new(), "it warns once");
        replace(&path, &[("/a", 1), ("/b", 1)], &["/b"]);
        assert_eq!(refresh(&mut source).0, Refreshed::Changed);
        assert!(source.locks("/b", gvdb::hash(b"/b")) && !source.locks("/a", gvdb::hash(b"/a")));
        assert_eq!(source.locked_keys(), ["/b"]);
        let disk = store::disk::real();
        let retired = store::generation::Retired::open(&*disk, &path).unwrap().unwrap();
        replace(&path, &[("/a", 2)], &[]);
        assert!(!source.is_stale());
        retired.retire().unwrap();
        assert!(source.is_stale());
        assert_eq!(refresh(&mut source).0, Refreshed::Changed);
        assert_eq!(value(&source, "/a"), Some(2));
        assert!(!source.locks("/b", gvdb::hash(b"/b")));
    }

    #[test]
    fn a_file_is_never_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        replace(&path, &[("/a", 1)], &[]);
        let mut source =
            ProfileDatabase::new(Description::File(path.clone()), &environment(dir.path()));
        refresh(&mut source);
        let disk = store::disk::real();
        let retired = store::generation::Retired::open(&*disk, &path).unwrap().unwrap();
        replace(&path, &[("/a", 2)], &[]);
        retired.retire().unwrap();
        assert!(!source.is_stale());
    }

    #[test]
    fn the_service_is_asked_for_a_file_that_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        let mut source = ProfileDatabase::new(Description::Service("shm/x".into()), &environment);
        let path = source.path().to_owned();
        let mut asked = Vec::new();
        source.refresh(
            &mut |description| {
                asked.push(description.clone());
                replace(&path, &[], &[]);
            },
            &mut |warning| panic!("{warning}"),
        );
        assert_eq!(asked, [Description::Service("shm/x".into())]);
        assert!(!source.is_stale());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
    fn what_is_no_database_is_told_in_the_words_of_dconf() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let shown = path.display().to_string();
        for text in ["", "hello, hello, hello, hello"] {
            std::fs::write(&path, text).unwrap();
            let mut source =
                ProfileDatabase::new(Description::File(path.clone()), &environment(dir.path()));
            let wanted = format!(
                "unable to open file '{shown}': {shown}: invalid gvdb header; expect degraded performance"
            );
            assert_eq!(refresh(&mut source).1, [wanted]);
        }
    }

    #[test]
    fn a_users_database_that_is_there_and_cannot_be_opened_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let environment = environment(dir.path());
        let mut source = ProfileDatabase::new(Description::User("user".into()), &environment);
        std::fs::create_dir_all(source.path()).unwrap();
        let warnings = refresh(&mut source).1;
        assert!(warnings[0].contains("Is a directory"), "{warnings:?}");
        assert_eq!(refresh(&mut source).1, Vec::<String>::new(), "it warns once");
    }
}
