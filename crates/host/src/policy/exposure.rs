//! Finds who else can write the policy: an application that it limits, or another user.
//!
//! A policy binds an application only if the application cannot write the file, or replace it through a directory above
//! it. The write permissions of a Flatpak application are in its metadata and in the overrides.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{HostPolicy, RuleEffect, Section};
use xdg::keyfile::KeyFile;

/// The longest metadata that are read.
const MOST_BYTES: u64 = 1 << 20;

/// The directories of the user and of Flatpak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExposurePlaces {
    /// The home of the user.
    pub home: PathBuf,
    /// The configuration directory of the user.
    pub config: PathBuf,
    /// The installations of Flatpak with their overrides, in the order in which the overrides count: the system's first.
    pub installations: Vec<PathBuf>,
    /// Where snaps are mounted.
    pub snaps: PathBuf,
}

impl ExposurePlaces {
    /// Returns the usual directories for the user with this home, configuration and data directory.
    #[must_use]
    pub fn usual(home: &Path, config: &Path, data: &Path) -> ExposurePlaces {
        ExposurePlaces {
            home: home.to_owned(),
            config: config.to_owned(),
            installations: vec!["/var/lib/flatpak".into(), data.join("flatpak")],
            snaps: "/snap".into(),
        }
    }
}

/// A party that can write the policy although the policy limits it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposure {
    /// An application of Flatpak has a permission to write it.
    Permission {
        /// The application.
        application: String,
        /// The permission, as `home`.
        permission: String,
        /// The file that gives it.
        given_by: PathBuf,
    },
    /// A snap without confinement.
    Unconfined {
        /// The section that is about it.
        application: String,
    },
    /// An application may run every command, or every command that is not forbidden, including one that writes the policy.
    Commands {
        /// The section that says so.
        application: String,
    },
    /// The policy limits programs of the host, which run as the user who owns the policy.
    Host,
    /// Another user owns the file or a directory above it.
    Owner {
        /// The file or directory.
        path: PathBuf,
        /// The user.
        uid: u32,
    },
    /// A group, or everybody, can write the file or put another one in place.
    Mode {
        /// The file or directory.
        path: PathBuf,
        /// The group; `None` for everybody.
        gid: Option<u32>,
    },
}

impl Exposure {
    /// Returns the command that removes the exposure, if there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Exposure::Permission { application, permission, .. } => {
                let permission = shell_words::quote(permission);
                Some(format!("flatpak override --user --nofilesystem={permission} {application}"))
            }
            Exposure::Mode { path, gid } => {
                let who = if gid.is_some() { "g-w" } else { "o-w" };
                Some(format!("chmod {who} {}", shell_words::quote(&path.to_string_lossy())))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exposure::Permission { application, permission, given_by } => write!(
                f,
                "{application} can write the policy: it has the permission filesystems={permission} ({})",
                given_by.display()
            ),
            Exposure::Unconfined { application } => {
                write!(f, "{application} can write the policy: it is a snap without confinement")
            }
            Exposure::Commands { application } => write!(
                f,
                "[{application}] may run every command that is not forbidden, so it can write the policy"
            ),
            Exposure::Host => f.write_str(
                "[host] is about programs of your own, which can write the policy as you can",
            ),
            Exposure::Owner { path, uid } => {
                write!(f, "user {uid} can write the policy: {} is theirs", path.display())
            }
            Exposure::Mode { path, gid: Some(gid) } => {
                write!(f, "group {gid} can write the policy: it may write {}", path.display())
            }
            Exposure::Mode { path, gid: None } => {
                write!(f, "every user can write the policy: they may write {}", path.display())
            }
        }
    }
}

/// Returns the parties that can write the policy in `file` although it limits them. A policy without limits has no
/// such parties.
///
/// It reads the metadata of applications, which may block as long as their disk does. Permissions of the runtime of
/// an application, access control lists (`setfacl`) and the mounts of containers are not examined.
#[must_use]
pub fn exposures(policy: &HostPolicy, file: &Path, places: &ExposurePlaces) -> Vec<Exposure> {
    let mut found = BTreeSet::new();
    if !policy.limits_anybody() {
        return Vec::new();
    }
    let ways = ways_to(file);
    for section in policy.sections.iter().filter(|section| !section.limits_nothing()) {
        let application = section.name.clone();
        match &*section.name {
            "host" => drop(found.insert(Exposure::Host)),
            "other" => {}
            name => match name.strip_prefix("snap.") {
                Some(snap) if is_classic(places, snap) => {
                    found.insert(Exposure::Unconfined { application: application.clone() });
                }
                Some(_) => {}
                None => {
                    for id in applications_of(policy, section, places) {
                        found.extend(permission_to_write(&id, &ways, places));
                    }
                }
            },
        }
        if section.name != "host" && section.runs_what_is_not_forbidden() {
            found.insert(Exposure::Commands { application });
        }
    }
    found.extend(ways.iter().flat_map(|way| other_users(way)));
    found.into_iter().collect()
}

impl Section {
    /// Returns whether a command without a rule may run.
    fn runs_what_is_not_forbidden(&self) -> bool {
        let decisive = self.rules.iter().map(|(_, rule)| rule).find(|rule| rule.is_about_all());
        match decisive {
            Some(rule) => rule.effect == RuleEffect::Allow,
            None => !self.allows_something(),
        }
    }
}

/// Returns the file and all directories above it, with and without symlinks resolved.
fn ways_to(file: &Path) -> BTreeSet<PathBuf> {
    let mut ways: BTreeSet<PathBuf> = file.ancestors().map(Path::to_owned).collect();
    for way in file.ancestors() {
        // It fails for a path that does not exist yet.
        if let Ok(resolved) = fs::canonicalize(way) {
            ways.extend(resolved.ancestors().map(Path::to_owned));
        }
    }
    ways
}

/// Returns the installed applications that have a section.
fn applications_of(
    policy: &HostPolicy,
    section: &Section,
    places: &ExposurePlaces,
) -> BTreeSet<String> {
    let Some(stem) = section.name.strip_suffix('*') else {
        return BTreeSet::from([section.name.clone()]);
    };
    let entries = places.installations.iter().filter_map(|dir| fs::read_dir(dir.join("app")).ok());
    let names =
        entries.flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_about = |id: &String| {
        let application = crate::identity::CallerKind::Flatpak { id: id.clone(), instance: None };
        id.starts_with(stem) && policy.section_name(&application) == Some(&section.name)
    };
    names.filter(is_about).collect()
}

/// Returns the permissions by which an application can write one of these paths.
fn permission_to_write(
    id: &str,
    ways: &BTreeSet<PathBuf>,
    places: &ExposurePlaces,
) -> Vec<Exposure> {
    let mut permissions: BTreeMap<String, (Access, PathBuf)> = BTreeMap::new();
    let metadata = places.installations.iter().rev();
    let metadata = metadata.map(|dir| dir.join("app").join(id).join("current/active/metadata"));
    // The user's own installation has precedence.
    let files = metadata.take(places.installations.len()).find(|file| file.exists()).into_iter();
    let overrides = places
        .installations
        .iter()
        .flat_map(|dir| ["global", id].map(|name| dir.join("overrides").join(name)));
    for file in files.chain(overrides) {
        let Ok(text) = read(&file) else { continue };
        for (permission, access) in filesystems(&text) {
            match (permission.as_str(), access) {
                // All earlier permissions are removed.
                ("host", Access::Reset) => permissions.clear(),
                (_, Access::Reset) => {}
                _ => drop(permissions.insert(permission, (access, file.clone()))),
            }
        }
    }
    let writes = |permission: &str| {
        let covers_home = matches!(permission, "home" | "host");
        match permission {
            "host" if ways.iter().any(|way| is_below_host(way)) => true,
            _ if covers_home => is_covered(&places.home, ways),
            _ => place_of(permission, places).is_some_and(|place| is_covered(&place, ways)),
        }
    };
    let found = permissions
        .into_iter()
        .filter(|(permission, (access, _))| *access == Access::Write && writes(permission));
    found
        .map(|(permission, (_, given_by))| Exposure::Permission {
            application: id.to_owned(),
            permission,
            given_by,
        })
        .collect()
}

/// The effect of a permission on a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Write,
    Read,
    None,
    /// Earlier permissions are removed.
    Reset,
}

/// Reads the `filesystems` of metadata or of an override.
fn filesystems(text: &[u8]) -> Vec<(String, Access)> {
    let Ok(file) = KeyFile::parse(text) else { return Vec::new() };
    let list = file.get("Context", "filesystems").unwrap_or_default();
    let items = list.split(';').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            let (negated, item) = match item.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, item),
            };
            let (place, mode) = match item.rsplit_once(':') {
                Some((place, mode @ ("ro" | "rw" | "create" | "reset"))) => (place, mode),
                _ => (item, "rw"),
            };
            let (place, mode) = match place.strip_suffix("-reset") {
                Some(place) => (place, "reset"),
                None => (place, mode),
            };
            let access = match (negated, mode) {
                (true, "reset") => Access::Reset,
                (true, _) => Access::None,
                (false, "ro") => Access::Read,
                (false, _) => Access::Write,
            };
            let trimmed = place.trim_end_matches('/');
            (if trimmed.is_empty() { "/" } else { trimmed }.to_owned(), access)
        })
        .collect()
}

/// Returns the directory that a permission names; `None` for one that holds no user's files.
fn place_of(permission: &str, places: &ExposurePlaces) -> Option<PathBuf> {
    if let Some(rest) = permission.strip_prefix('~') {
        return Some(places.home.join(rest.trim_start_matches('/')));
    }
    if permission.starts_with('/') {
        return Some(permission.into());
    }
    let (name, rest) = permission.split_once('/').unwrap_or((permission, ""));
    let base = match name {
        "xdg-config" => places.config.clone(),
        "xdg-data" => places.home.join(".local/share"),
        "xdg-state" => places.home.join(".local/state"),
        "xdg-cache" => places.home.join(".cache"),
        "home" => places.home.clone(),
        _ => return None,
    };
    Some(if rest.is_empty() { base } else { base.join(rest) })
}

/// Returns whether write access to `place`, a directory or a file, gives write access to one of these paths.
fn is_covered(place: &Path, ways: &BTreeSet<PathBuf>) -> bool {
    let resolved = fs::canonicalize(place);
    ways.contains(place) || resolved.is_ok_and(|resolved| ways.contains(&resolved))
}

/// Returns whether `host` includes a directory: all but those of the system.
fn is_below_host(way: &Path) -> bool {
    let first = way.components().nth(1).map(|part| part.as_os_str().to_owned());
    let shared = ["home", "media", "mnt", "opt", "root", "run", "srv", "var"];
    first.is_some_and(|first| shared.iter().any(|name| first == *name))
}

fn is_classic(places: &ExposurePlaces, snap: &str) -> bool {
    let text = read(&places.snaps.join(snap).join("current/meta/snap.yaml")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines();
    lines.any(|line| line.strip_prefix("confinement:").is_some_and(|it| it.trim() == "classic"))
}

/// Returns the other users that can write a file, or replace one in a directory.
fn other_users(way: &Path) -> Vec<Exposure> {
    let Ok(status) = fs::symlink_metadata(way) else { return Vec::new() };
    if status.is_symlink() {
        return Vec::new();
    }
    let own = rustix::process::geteuid().as_raw();
    let path = way.to_owned();
    if status.uid() != own && status.uid() != 0 {
        return vec![Exposure::Owner { path, uid: status.uid() }];
    }
    // In a sticky directory only owners can rename files.
    let is_sticky = status.is_dir() && status.mode() & 0o1000 != 0;
    let (gid, own_gid) = (status.gid(), rustix::process::getegid().as_raw());
    let by_group = status.mode() & 0o020 != 0 && gid != own_gid && gid != 0;
    let by_all = status.mode() & 0o002 != 0;
    match (is_sticky, by_all, by_group) {
        (true, ..) | (_, false, false) => Vec::new(),
        (_, true, _) => vec![Exposure::Mode { path, gid: None }],
        (_, _, true) => vec![Exposure::Mode { path, gid: Some(gid) }],
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    use rustix::fs::{Mode, OFlags, open};
    // The path may be a pipe, which is not read.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    let file = fs::File::from(open(path, flags, Mode::empty())?);
    io::Read::read_to_end(&mut io::Read::take(file, MOST_BYTES), &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test is the user")]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const ID: &str = "org.vim.Vim";

    /// A home with a policy about an application, and an installation of Flatpak.
    struct Machine {
        dir: tempfile::TempDir,
        places: ExposurePlaces,
        file: PathBuf,
    }

    impl Machine {
        fn new() -> Machine {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home/ann");
            let config = home.join(".config");
            create_dir_all(config.join("unjank")).unwrap();
            let places = ExposurePlaces {
                installations: vec![dir.path().join("system"), home.join(".local/share/flatpak")],
                snaps: dir.path().join("snap"),
                home,
                config: config.clone(),
            };
            Machine { dir, places, file: super::super::file(&config) }
        }

        fn permit(&self, installation: usize, filesystems: &str) {
            let dir = self.places.installations[installation].join("app").join(ID);
            create_dir_all(dir.join("current/active")).unwrap();
            let text =
                format!("[Application]\nname={ID}\n\n[Context]\nfilesystems={filesystems}\n");
            write(dir.join("current/active/metadata"), text).unwrap();
        }

        fn overrule(&self, installation: usize, name: &str, filesystems: &str) {
            let dir = self.places.installations[installation].join("overrides");
            create_dir_all(&dir).unwrap();
            write(dir.join(name), format!("[Context]\nfilesystems={filesystems}\n")).unwrap();
        }

        fn exposures(&self, policy: &str) -> Vec<String> {
            write(&self.file, policy).unwrap();
            let policy = HostPolicy::parse(policy).unwrap();
            let found = exposures(&policy, &self.file, &self.places);
            found.iter().map(ToString::to_string).collect()
        }

        fn is_told(&self, policy: &str) -> bool {
            !self.exposures(policy).is_empty()
        }
    }

    const LIMITED: &str = "[org.vim.Vim]\nallow git\n";

    #[test]
    fn a_permission_for_the_file_or_a_directory_above_it_is_told() {
        let machine = Machine::new();
        let config = machine.places.config.display().to_string();
        for (filesystems, is_told) in [
            ("home;", true),
            ("host", true),
            ("home:create", true),
            ("~/", true),
            ("~/.config", true),
            ("xdg-config", true),
            ("xdg-config/unjank:rw", true),
            ("xdg-config/unjank/host-policy", true),
            (&*format!("xdg-music;{config}"), true),
            ("/", true),
            ("home:ro", false),
            ("xdg-config:ro;xdg-download", false),
            ("xdg-config/vim", false),
            ("~/notes;/srv", false),
            ("xdg-data;xdg-run/app", false),
            ("", false),
        ] {
            machine.permit(0, filesystems);
            assert_eq!(machine.is_told(LIMITED), is_told, "{filesystems}");
            // A read-only place below one that can be written does not help: the one above can be moved away.
            machine.permit(0, &format!("{filesystems};xdg-config/unjank:ro"));
            let is_the_same = filesystems.starts_with("xdg-config/unjank:rw");
            assert_eq!(machine.is_told(LIMITED), is_told && !is_the_same, "{filesystems}");
        }
    }

    #[test]
    fn overrides_give_and_take() {
        let machine = Machine::new();
        machine.permit(0, "home");
        assert!(machine.exposures(LIMITED)[0].contains("filesystems=home"));
        machine.overrule(1, ID, "!home");
        assert!(!machine.is_told(LIMITED));
        machine.overrule(1, ID, "!host:reset;xdg-download");
        assert!(!machine.is_told(LIMITED));
        machine.overrule(1, ID, "");
        machine.overrule(0, "global", "!home");
        assert!(!machine.is_told(LIMITED));
        machine.overrule(1, "global", "host");
        assert!(machine.exposures(LIMITED)[0].contains("overrides/global"));
        machine.overrule(1, ID, "!host");
        assert!(!machine.is_told(LIMITED));
        // The user's own installation has precedence.
        machine.overrule(0, "global", "");
        machine.permit(1, "xdg-download");
        assert!(!machine.is_told(LIMITED));
    }

    #[test]
    fn links_are_followed_both_ways() {
        let machine = Machine::new();
        let elsewhere = machine.dir.path().join("dotfiles");
        create_dir_all(&elsewhere).unwrap();
        std::fs::remove_dir(machine.places.config.join("unjank")).unwrap();
        symlink(&elsewhere, machine.places.config.join("unjank")).unwrap();
        machine.permit(0, &elsewhere.display().to_string());
        assert!(machine.is_told(LIMITED));
        let link = machine.dir.path().join("link");
        symlink(machine.dir.path(), &link).unwrap();
        machine.permit(0, &link.join("dotfiles").display().to_string());
        assert!(machine.is_told(LIMITED));
    }

    #[test]
    fn an_application_that_runs_what_it_likes_can_write_too() {
        let machine = Machine::new();
        for (policy, is_told) in [
            ("[org.vim.Vim]\ndeny sudo\n", true),
            ("[org.vim.Vim]\ndeny sudo\nallow *\n", true),
            ("[org.vim.Vim]\nallow git\ndeny *\n", false),
            ("[org.vim.Vim]\ndeny *\nallow *\n", false),
            ("[org.vim.Vim]\nallow git\n", false),
            // It has no limits.
            ("[org.vim.Vim]\nallow *\n", false),
            ("[other]\ndeny sudo\n", true),
            ("[host]\nallow git\n", true),
        ] {
            assert_eq!(machine.is_told(policy), is_told, "{policy}");
        }
    }

    #[test]
    fn every_application_of_a_section_is_looked_at() {
        let machine = Machine::new();
        machine.permit(0, "home");
        assert!(machine.exposures("[org.*]\nallow git\n")[0].starts_with("org.vim.Vim "));
        assert!(machine.is_told("[*]\nallow git\n"));
        assert!(!machine.is_told("[com.*]\nallow git\n"));
        // Another section applies to it.
        assert!(!machine.is_told("[*]\nallow git\n[org.vim.*]\nallow *\n"));
        let snap = machine.places.snaps.join("code/current/meta");
        create_dir_all(&snap).unwrap();
        write(snap.join("snap.yaml"), "name: code\nconfinement: classic\n").unwrap();
        assert!(machine.is_told("[snap.code]\nallow git\n"));
        write(snap.join("snap.yaml"), "name: code\nconfinement: strict\n").unwrap();
        assert!(!machine.is_told("[snap.code]\nallow git\n"));
    }

    #[test]
    fn what_other_users_may_write_is_told() {
        let machine = Machine::new();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write(&machine.file, LIMITED).unwrap();
        let ways = [&machine.file, &machine.places.config, &machine.places.home];
        for (way, (open, closed)) in
            ways.iter().zip([(0o666, 0o644), (0o777, 0o755), (0o707, 0o700)])
        {
            mode(way, open);
            assert!(machine.is_told(LIMITED), "{}", way.display());
            mode(way, closed);
            assert_eq!(machine.exposures(LIMITED), [""; 0]);
        }
        mode(&machine.places.home, 0o1777);
        assert!(!machine.is_told(LIMITED), "as /tmp");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&machine.places.home, Some(4711), None).unwrap();
            assert!(machine.exposures(LIMITED)[0].contains("user 4711"));
            std::os::unix::fs::chown(&machine.places.home, Some(0), Some(4712)).unwrap();
            mode(&machine.places.home, 0o775);
            assert!(machine.exposures(LIMITED)[0].contains("group 4712"));
        }
    }
}
