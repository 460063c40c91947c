//! Paths that are not recorded as they are: those that the user's rules for recent documents exclude.
//!
//! Such a path is stored as a hash with a salt of this store, so that hangs on the same file can be counted and nothing of
//! its name is kept. The lists of recent documents themselves are no documents, and are recorded in private mode, too.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use recents::policy::{PolicySubject, RetentionPolicy, RetentionVerdict};
use recents::{RecentTime, RecentsFiles, Uri};
use sha2::{Digest, Sha256};
use store::disk::Disk;
use store::publish::{is_link, publish};

/// The name of the file with the salt.
const SALT: &str = "salt";
/// Directories that hold no documents of a person.
const SYSTEM: [&str; 15] = [
    "/usr/",
    "/etc/",
    "/var/lib/",
    "/var/cache/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/lib/",
    "/lib64/",
    "/opt/",
    "/run/user/",
    "/run/dbus/",
    "/run/systemd/",
    "/tmp/.X11-unix/",
    "/tmp/.ICE-unix/",
];
/// Directories of each user below `/run/user` that are other names of a person's documents.
const DOCUMENTS: [&str; 2] = ["doc", "gvfs"];

/// The name of the list that GTK's and KDE's programs share.
const SHARED_LIST: &str = "recently-used.xbel";
/// The name of the directory of KDE's links.
const LINKS: &str = "RecentDocuments";
/// The directory of the database of KDE's activity service, in that of the user's data.
const ACTIVITIES: &str = "kactivitymanagerd/resources";

/// Returns whether what follows the name of the shared list makes it its lock or a new version of it: `QSaveFile` of Qt and
/// `g_file_set_contents` of GLib put six letters or digits there, not all of them small letters.
fn is_of_list(ending: &str) -> bool {
    let is_version = |letters: &str| {
        letters.len() == 6
            && letters.bytes().all(|letter| letter.is_ascii_alphanumeric())
            && !letters.bytes().all(|letter| letter.is_ascii_lowercase())
    };
    matches!(ending, "" | ".lock" | ".lock.rmlock" | ".unjank-copy")
        || ending.strip_prefix('.').is_some_and(is_version)
}

/// Returns the list of recent documents of which a path is a part, a lock or a new version.
#[must_use]
pub fn shared_list(path: &str) -> Option<&str> {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let (above, name) = path.rsplit_once('/')?;
    match name.strip_prefix(SHARED_LIST) {
        Some(ending) if is_of_list(ending) => Some(&path[..path.len() - ending.len()]),
        _ if name == LINKS => Some(path),
        _ if above.rsplit('/').next() == Some(LINKS) => Some(above),
        _ => None,
    }
}

/// Decides which paths are stored as a hash.
pub struct PathConcealer {
    disk: Arc<dyn Disk>,
    policy: Option<RetentionPolicy>,
    /// Where the lists of recent documents are, if anything is excluded.
    lists: Option<RecentLists>,
    salt: [u8; 16],
}

/// Where the lists of recent documents are, which are no documents themselves.
#[derive(Debug)]
struct RecentLists {
    /// The directories that hold the shared list: that of the user's data, and that of the lists in memory.
    directories: Vec<PathBuf>,
    /// The directory of KDE's activity database.
    activities: PathBuf,
}

impl RecentLists {
    fn of(files: &RecentsFiles) -> RecentLists {
        RecentLists {
            directories: [&files.data].into_iter().chain(&files.runtime).cloned().collect(),
            activities: files.data.join(ACTIVITIES),
        }
    }

    /// Returns what is stored of a path that is one of the lists; of a file in the directory of links that directory, because the
    /// names of links are those of documents.
    fn stored(&self, path: &str) -> Option<String> {
        let place = Path::new(path);
        let is_whole = place.starts_with(&self.activities)
            || self.directories.iter().any(|directory| {
                place.parent() == Some(directory)
                    && place.file_name().and_then(|name| name.to_str()).is_some_and(is_list_name)
            });
        let links = self.directories.iter().map(|directory| directory.join(LINKS));
        match is_whole {
            true => Some(path.to_owned()),
            false => links
                .into_iter()
                .find(|links| place.starts_with(links))
                .and_then(|links| links.to_str().map(str::to_owned)),
        }
    }
}

/// Returns whether a file directly in a directory of lists is one. A file without a name is a new version of one, as `QSaveFile`
/// makes it; its number says nothing of a document.
fn is_list_name(name: &str) -> bool {
    let is_unnamed = |number: &str| number.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix(SHARED_LIST).is_some_and(is_of_list)
        || name.strip_prefix('#').is_some_and(is_unnamed)
}

impl fmt::Debug for PathConcealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathConcealer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl PathConcealer {
    /// Creates one for the store in `dir`, with the salt that is there, or a new one. Without `files` every path is stored as it is.
    ///
    /// # Errors
    ///
    /// The salt cannot be read or written.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &Path,
        files: Option<&RecentsFiles>,
    ) -> io::Result<PathConcealer> {
        let salt = salt(&*disk, dir)?;
        let lists = files.map(RecentLists::of);
        Ok(PathConcealer { policy: files.map(RetentionPolicy::new), lists, disk, salt })
    }

    /// Returns what is stored in the place of a path that `program` used at `now`.
    pub fn stored_path(&mut self, path: &str, program: &str, now: SystemTime) -> String {
        let Some(policy) = &mut self.policy else { return path.to_owned() };
        if !path.starts_with('/') {
            return path.to_owned();
        }
        let plain = path.strip_suffix(" (deleted)").unwrap_or(path);
        let Ok(uri) = Uri::of_path(&PathBuf::from(plain)) else { return path.to_owned() };
        let subject = PolicySubject { uri: &uri, mime: None, application: program };
        let now = RecentTime::of(now);
        if let Some(list) = self.lists.as_ref().and_then(|lists| lists.stored(plain))
            && !policy.denies_place(&*self.disk, subject)
        {
            // The end of a name that was removed says so, but for the links, of which none is named.
            return if list == plain { path.to_owned() } else { list };
        }
        let is_remembered =
            matches!(policy.decide_foreign(&*self.disk, subject, now), RetentionVerdict::Remember);
        // Private mode and the like are about documents; a rule may name any place.
        match is_remembered || (is_of_system(plain) && !policy.denies_place(&*self.disk, subject)) {
            true => path.to_owned(),
            false => self.hash(plain),
        }
    }

    fn hash(&self, path: &str) -> String {
        format!("excluded:{}", salted_hash(self.salt, path))
    }
}

/// Returns whether a path is no document of a person.
fn is_of_system(path: &str) -> bool {
    let of_user = path.strip_prefix("/run/user/").and_then(|rest| rest.split('/').nth(1));
    SYSTEM.iter().any(|directory| path.starts_with(directory))
        && !of_user.is_some_and(|directory| DOCUMENTS.contains(&directory))
}

/// Returns what stands for a text that is not stored, in hexadecimal.
pub(crate) fn salted_hash(salt: [u8; 16], text: &str) -> String {
    let hash = Sha256::new().chain_update(salt).chain_update(text).finalize();
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the salt of the store in `dir`, a new one if there is none.
pub(crate) fn salt(disk: &dyn Disk, dir: &Path) -> io::Result<[u8; 16]> {
    let path = dir.join(SALT);
    match is_link(disk, &path) {
        // Not made by us: what it points to is neither read nor written.
        Ok(true) => disk.remove(&path)?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let stored = match disk.read(&path) {
        Ok(bytes) => <[u8; 16]>::try_from(&*bytes).ok(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    stored.map_or_else(|| new_salt(disk, &path), Ok)
}

fn new_salt(disk: &dyn Disk, path: &Path) -> io::Result<[u8; 16]> {
    let mut salt = [0; 16];
    for half in salt.chunks_exact_mut(8) {
        half.copy_from_slice(&disk.token()?.to_ne_bytes());
    }
    publish(disk, path, &salt).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_in_the_place_of_the_salt_points_to_is_neither_read_nor_written() {
        let home = tempfile::tempdir().unwrap();
        let (disk, salt) = (store::disk::real(), home.path().join(SALT));
        for contents in ["of somebody else", "sixteen bytes!!!"] {
            let victim = home.path().join("victim");
            publish(&*disk, &victim, contents.as_bytes()).unwrap();
            std::os::unix::fs::symlink(&victim, &salt).unwrap();
            let concealer = PathConcealer::open(Arc::clone(&disk), home.path(), None).unwrap();
            assert_ne!(concealer.salt, *b"sixteen bytes!!!");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), contents);
            assert!(!is_link(&*disk, &salt).unwrap());
            std::fs::remove_file(&salt).unwrap();
        }
        std::os::unix::fs::symlink("/nowhere/at all", &salt).unwrap();
        PathConcealer::open(Arc::clone(&disk), home.path(), None).unwrap();
        assert_eq!(std::fs::read(&salt).unwrap().len(), 16);
    }

    /// Returns one of a home with these rules.
    fn concealer(home: &Path, rules: &[u8]) -> PathConcealer {
        let (disk, files) = (store::disk::real(), RecentsFiles::below(home));
        store::publish::make_directory(&*disk, files.rules().parent().unwrap()).unwrap();
        publish(&*disk, &files.rules(), rules).unwrap();
        PathConcealer::open(disk, home, Some(&files)).unwrap()
    }

    #[test]
    fn an_excluded_path_is_a_hash_that_is_the_same_each_time_and_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let rules = b"deny path /srv/secret/**\n";
        let mut concealer = concealer(home.path(), rules);
        let at = SystemTime::UNIX_EPOCH;
        let once = concealer.stored_path("/srv/secret/a/b.txt", "kate", at);
        assert!(once.starts_with("excluded:") && !once.contains("secret"), "{once}");
        assert_eq!(concealer.stored_path("/srv/secret/a/b.txt (deleted)", "kate", at), once);
        assert_ne!(concealer.stored_path("/srv/secret/a/c.txt", "kate", at), once);
        assert_eq!(concealer.stored_path("/srv/open/c.txt", "kate", at), "/srv/open/c.txt");
        let mut again = self::concealer(home.path(), rules);
        assert_eq!(again.stored_path("/srv/secret/a/b.txt", "kate", at), once, "the salt is kept");
    }

    #[test]
    fn a_place_that_a_rule_excludes_is_a_hash_whatever_else_excludes_it() {
        let home = tempfile::tempdir().unwrap();
        let mut concealer =
            concealer(home.path(), b"deny\tpath\t/opt/clients/**\ndeny application kate\n");
        let mut is_hash = |path: &str, program: &str| {
            let stored = concealer.stored_path(path, program, SystemTime::UNIX_EPOCH);
            assert!(stored == path || stored.starts_with("excluded:"), "{stored}");
            stored != path
        };
        // The rule about the program is the last that matches.
        assert!(is_hash("/opt/clients/a", "kate") && is_hash("/opt/clients/a", "vim"));
        assert!(is_hash("/home/ann/a", "kate") && !is_hash("/home/ann/a", "vim"));
        for system in ["/usr/bin/a", "/opt/a", "/run/user/1000/bus", "/tmp/.X11-unix/X0"] {
            assert!(!is_hash(system, "kate"), "{system}");
        }
        for document in ["/run/user/1000/doc/1f/a", "/run/user/1000/gvfs/smb:/a", "/run/media/a"] {
            assert!(is_hash(document, "kate"), "{document}");
        }
    }

    #[test]
    fn the_lists_of_recent_documents_are_no_documents_and_their_links_are_not_named() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("{}/{name}", home.path().display());
        let lists = [
            ".local/share/recently-used.xbel",
            ".local/share/recently-used.xbel.lock",
            ".local/share/recently-used.xbel.A1b2C3",
            ".local/share/#9986544 (deleted)",
            ".local/share/kactivitymanagerd/resources/database-wal",
            ".local/share/RecentDocuments",
        ];
        let others = [
            ".local/share/recently-used.xbel.of-mine",
            ".local/share/notes/recently-used.xbel",
            ".local/share/#minutes",
            ".local/share/RecentDocumentsOfAnn/a",
            ".local/share/kactivitymanagerd/other",
            "Documents/recently-used.xbel",
            ".local/share/letter.odt",
        ];
        let links = ".local/share/RecentDocuments/letter.odt.desktop";
        for rules in [&b"deny hidden\ndeny application kate\n"[..], b"off\n"] {
            let mut concealer = concealer(home.path(), rules);
            let mut stored =
                |name: &str| concealer.stored_path(&path(name), "kate", SystemTime::UNIX_EPOCH);
            for name in lists {
                assert_eq!(stored(name), path(name));
            }
            assert_eq!(stored(links), path(".local/share/RecentDocuments"));
            for name in others {
                assert!(stored(name).starts_with("excluded:"), "{name}: {}", stored(name));
            }
        }
        // Whose rule names the place means it.
        let rule = format!("deny path {}/.local/**\n", home.path().display());
        let mut concealer = concealer(home.path(), rule.as_bytes());
        for name in [lists[0], links] {
            let stored = concealer.stored_path(&path(name), "kate", SystemTime::UNIX_EPOCH);
            assert!(stored.starts_with("excluded:"), "{stored}");
        }
        let of = shared_list;
        assert_eq!(of("/a/recently-used.xbel.A1b2C3 (deleted)"), Some("/a/recently-used.xbel"));
        assert_eq!(of("/a/RecentDocuments/x.desktop"), Some("/a/RecentDocuments"));
        assert_eq!(of("/a/recently-used.xbel.backup"), None);
        assert_eq!(of("/a/RecentDocuments/b/c"), None);
    }

    #[test]
    fn while_the_rules_cannot_be_read_every_path_is_a_hash() {
        let home = tempfile::tempdir().unwrap();
        let rules = RecentsFiles::below(home.path()).rules();
        drop(concealer(home.path(), b""));
        std::fs::remove_file(&rules).unwrap();
        std::fs::create_dir(&rules).unwrap();
        let files = RecentsFiles::below(home.path());
        let mut unread =
            PathConcealer::open(store::disk::real(), home.path(), Some(&files)).unwrap();
        for path in ["/opt/clients/a", "/home/ann/a"] {
            let stored = unread.stored_path(path, "vim", SystemTime::UNIX_EPOCH);
            assert!(stored.starts_with("excluded:"), "{stored}");
        }
    }
}
