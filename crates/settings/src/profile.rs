//! Profiles: which databases a program's settings come from, and in which order.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::names::{DatabaseId, DatabaseKind};

/// Where a session keeps what concerns its settings; read from the environment by the program, never here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsEnvironment {
    /// `$DCONF_PROFILE`: an absolute path, or a name below a `dconf/profile` directory.
    pub profile: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME`, or `~/.config`.
    pub config_home: PathBuf,
    /// `$XDG_RUNTIME_DIR`; without it `$XDG_CACHE_HOME` or `~/.cache`, as GLib does.
    pub runtime_dir: PathBuf,
    /// `$XDG_DATA_DIRS`, or `/usr/local/share` and `/usr/share`.
    pub data_dirs: Vec<PathBuf>,
    /// The directory of the administrator's files, `/etc`.
    pub sysconf_dir: PathBuf,
    /// The directory of the profile that the user must use, `/run/dconf/user`.
    pub mandatory_dir: PathBuf,
    /// The user.
    pub uid: u32,
}

impl SettingsEnvironment {
    /// Returns where settings are by the variables of a program, as GLib finds it: `variable` is `|name| std::env::var_os(name)`.
    ///
    /// A variable that is empty or, where a directory is wanted, not absolute counts as not set.
    #[must_use]
    pub fn from_variables(
        variable: impl Fn(&str) -> Option<OsString>,
        uid: u32,
    ) -> SettingsEnvironment {
        let given = |name| variable(name).filter(|value| !value.is_empty());
        let directory =
            |name| given(name).map(PathBuf::from).filter(|directory| directory.is_absolute());
        let home = directory("HOME").unwrap_or_else(|| PathBuf::from("/"));
        let runtime_dir = directory("XDG_RUNTIME_DIR").or_else(|| directory("XDG_CACHE_HOME"));
        let data_dirs =
            given("XDG_DATA_DIRS").unwrap_or_else(|| "/usr/local/share:/usr/share".into());
        SettingsEnvironment {
            profile: given("DCONF_PROFILE").map(PathBuf::from),
            config_home: directory("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
            runtime_dir: runtime_dir.unwrap_or_else(|| home.join(".cache")),
            data_dirs: std::env::split_paths(&data_dirs)
                .filter(|path| path.is_absolute())
                .collect(),
            sysconf_dir: "/etc".into(),
            mandatory_dir: "/run/dconf/user".into(),
            uid,
        }
    }
}

/// One database of a profile, as its line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Description {
    /// `user-db:X`: the user's own database.
    User(String),
    /// `service-db:kind/X`: a database that the service keeps in the runtime directory.
    Service(String),
    /// `system-db:X`: a database of the administrator.
    System(String),
    /// `file-db:/path`: a file that nobody tells us about when it changes.
    File(PathBuf),
}

/// The buses on which changes of databases are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProfileBus {
    /// The user's.
    Session,
    /// The machine's.
    System,
}

/// The databases of a profile in the order in which they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsProfile {
    /// The databases; the first one may be written if it is the user's or a service's.
    pub databases: Vec<Description>,
    /// What a person should know, in the words of `dconf`.
    pub warnings: Vec<String>,
}

impl Description {
    /// Reads `type:name`; `None` if the type is unknown or the name is empty.
    #[must_use]
    pub fn parse(text: &str) -> Option<Description> {
        let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty())?;
        match kind {
            "user-db" => Some(Description::User(name.to_owned())),
            "service-db" => Some(Description::Service(name.to_owned())),
            "system-db" => Some(Description::System(name.to_owned())),
            "file-db" => Some(Description::File(PathBuf::from(name))),
            _ => None,
        }
    }

    /// Returns whether a program may write to this database, were it the first of its profile.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        matches!(self, Description::User(_) | Description::Service(_))
    }

    /// Returns the bus and the object path that tell of changes; a file has none.
    #[must_use]
    pub fn object(&self) -> Option<(ProfileBus, String)> {
        match self {
            Description::User(name) => {
                Some((ProfileBus::Session, format!("/ca/desrt/dconf/Writer/{name}")))
            }
            Description::Service(name) => {
                Some((ProfileBus::Session, format!("/ca/desrt/dconf/{name}")))
            }
            Description::System(name) => {
                Some((ProfileBus::System, format!("/ca/desrt/dconf/Writer/{name}")))
            }
            Description::File(_) => None,
        }
    }

    /// Returns the database as our service knows it; `None` for one that it does not write.
    #[must_use]
    pub fn id(&self) -> Option<DatabaseId> {
        match self {
            Description::User(name) => DatabaseId::new(DatabaseKind::User, name),
            Description::Service(_) => DatabaseId::from_object_path(&self.object()?.1),
            Description::System(_) | Description::File(_) => None,
        }
    }

    /// Returns the file that is read.
    #[must_use]
    pub fn file(&self, environment: &SettingsEnvironment) -> PathBuf {
        match self {
            Description::User(name) => environment.config_home.join("dconf").join(relative(name)),
            Description::Service(name) => {
                environment.runtime_dir.join("dconf-service").join(relative(name))
            }
            Description::System(name) => {
                environment.sysconf_dir.join("dconf/db").join(relative(name))
            }
            Description::File(path) => path.clone(),
        }
    }
}

impl SettingsProfile {
    /// Chooses and reads the profile as every dconf client does. Never fails: what is wrong is a warning.
    ///
    /// The first that applies: `name`; the mandatory profile of the user; `$DCONF_PROFILE`; the profile of this
    /// session; the profile `user`; the user's database alone. A named profile that is missing gives no databases.
    #[must_use]
    pub fn choose(environment: &SettingsEnvironment, name: Option<&Path>) -> SettingsProfile {
        let mut warnings = Vec::new();
        let text = match name {
            Some(name) => named(environment, name, &mut warnings),
            None => unnamed(environment, &mut warnings),
        };
        let mut profile = match text {
            ProfileFile::Text(text) => SettingsProfile::parse(&text),
            ProfileFile::Nothing => SettingsProfile::default(),
            ProfileFile::UserOnly => SettingsProfile {
                databases: vec![Description::User("user".to_owned())],
                warnings: Vec::new(),
            },
        };
        warnings.append(&mut profile.warnings);
        SettingsProfile { warnings, ..profile }
    }

    /// Reads the text of a profile; lines that name no database are warned about and left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> SettingsProfile {
        let mut profile = SettingsProfile::default();
        for line in text.split(|&byte| byte == b'\n') {
            let line = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
            if line.is_empty() {
                continue;
            }
            let line = String::from_utf8_lossy(line);
            match Description::parse(&line) {
                Some(description) => profile.databases.push(description),
                None => {
                    profile.warnings.push(format!("unknown dconf database description: {line}"));
                }
            }
        }
        profile
    }

    /// Returns whether the first database may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.databases.first().is_some_and(Description::is_writable)
    }
}

enum ProfileFile {
    Text(Vec<u8>),
    /// The profile without databases.
    Nothing,
    UserOnly,
}

fn unnamed(environment: &SettingsEnvironment, warnings: &mut Vec<String>) -> ProfileFile {
    if let Ok(text) = read(&environment.mandatory_dir.join(environment.uid.to_string())) {
        return ProfileFile::Text(text);
    }
    if let Some(name) = &environment.profile {
        return named(environment, name, warnings);
    }
    if let Ok(text) = read(&environment.runtime_dir.join("dconf/profile")) {
        return ProfileFile::Text(text);
    }
    below_a_profile_dir(environment, Path::new("user"), warnings)
        .map_or(ProfileFile::UserOnly, ProfileFile::Text)
}

fn named(
    environment: &SettingsEnvironment,
    name: &Path,
    warnings: &mut Vec<String>,
) -> ProfileFile {
    let text = if name.is_absolute() {
        read(name).ok()
    } else {
        below_a_profile_dir(environment, name, warnings)
    };
    if let Some(text) = text {
        return ProfileFile::Text(text);
    }
    let name = name.display();
    warnings.push(format!("unable to open named profile ({name}): using the null configuration."));
    ProfileFile::Nothing
}

/// Only a file that is not there lets the next directory have its turn.
fn below_a_profile_dir(
    environment: &SettingsEnvironment,
    name: &Path,
    warnings: &mut Vec<String>,
) -> Option<Vec<u8>> {
    for dir in std::iter::once(&environment.sysconf_dir).chain(&environment.data_dirs) {
        let path = dir.join("dconf/profile").join(name);
        match read(&path) {
            Ok(text) => return Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => {
                let said = said(&error);
                warnings.push(format!("Unable to open {}: {said}", path.display()));
                return None;
            }
        }
    }
    None
}

/// Reads what can be read: a file that opens but cannot be read, such as a directory, is an empty profile.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    if let Err(error) = file.read_to_end(&mut text) {
        tracing::debug!(path = %path.display(), %error, "cannot read a profile to its end");
    }
    Ok(text)
}

/// Returns the system's words for an error, without the number that Rust adds.
pub(super) fn said(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// A database's name is joined as text, so that one that begins with `/` stays below the directory.
fn relative(name: &str) -> &str {
    name.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SourcePosition(tempfile::TempDir);

    impl SourcePosition {
        fn new() -> SourcePosition {
            SourcePosition(tempfile::tempdir().unwrap())
        }

        fn environment(&self) -> SettingsEnvironment {
            let root = self.0.path();
            SettingsEnvironment {
                profile: None,
                config_home: root.join("config"),
                runtime_dir: root.join("runtime"),
                data_dirs: vec![root.join("local"), root.join("share")],
                sysconf_dir: root.join("etc"),
                mandatory_dir: root.join("mandatory"),
                uid: 1000,
            }
        }

        #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    fn user(name: &str) -> Vec<Description> {
        vec![Description::User(name.to_owned())]
    }

    #[test]
    fn variables_say_where_settings_are() {
        let variables = |name: &str| {
            let value = match name {
                "HOME" => "/home/ann",
                "XDG_CONFIG_HOME" => "relative",
                "XDG_CACHE_HOME" => "/cache",
                "DCONF_PROFILE" => "other",
                "XDG_DATA_DIRS" => "/usr/share:relative:/opt",
                _ => return None,
            };
            Some(OsString::from(value))
        };
        let found = SettingsEnvironment::from_variables(variables, 5);
        let expected = SettingsEnvironment {
            profile: Some("other".into()),
            config_home: "/home/ann/.config".into(),
            runtime_dir: "/cache".into(),
            data_dirs: vec!["/usr/share".into(), "/opt".into()],
            sysconf_dir: "/etc".into(),
            mandatory_dir: "/run/dconf/user".into(),
            uid: 5,
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn every_kind_of_line_is_understood() {
        let profile = SettingsProfile::parse(
            b"# comment\r\n\r\n  user-db:u # mine\r\n\tservice-db:keyfile/k\nsystem-db:s\nfile-db:/f/g\n\
              nonsense\nuser-db:\nhttp://x\n",
        );
        assert_eq!(
            profile.databases,
            [
                Description::User("u".into()),
                Description::Service("keyfile/k".into()),
                Description::System("s".into()),
                Description::File("/f/g".into()),
            ]
        );
        let unknown = ["nonsense", "user-db:", "http://x"];
        let unknown = unknown.map(|line| format!("unknown dconf database description: {line}"));
        assert_eq!(profile.warnings, unknown);
        assert!(profile.is_writable());
    }

    #[test]
    fn long_lines_and_a_missing_last_newline_change_nothing() {
        let name = "n".repeat(5000);
        let text =
            format!("{}user-db:{name}{}#{}", " ".repeat(200), " ".repeat(300), "c".repeat(999));
        assert_eq!(SettingsProfile::parse(text.as_bytes()).databases, user(&name));
        assert_eq!(
            SettingsProfile::parse(b"user-db:a"),
            SettingsProfile { databases: user("a"), warnings: vec![] }
        );
    }

    #[test]
    fn only_the_first_database_decides_whether_the_profile_can_be_written() {
        assert!(SettingsProfile::parse(b"service-db:shm/x\nsystem-db:y").is_writable());
        assert!(!SettingsProfile::parse(b"system-db:y\nuser-db:x").is_writable());
        assert!(!SettingsProfile::parse(b"file-db:/y\nuser-db:x").is_writable());
        assert!(!SettingsProfile::parse(b"").is_writable());
    }

    #[test]
    fn the_first_choice_that_applies_is_taken() {
        let place = SourcePosition::new();
        let mut environment = place.environment();
        let chosen = |environment: &SettingsEnvironment| {
            SettingsProfile::choose(environment, None).databases
        };
        assert_eq!(chosen(&environment), user("user"), "nothing is there");
        place.put("share/dconf/profile/user", "user-db:share");
        assert_eq!(chosen(&environment), user("share"));
        place.put("local/dconf/profile/user", "user-db:local");
        assert_eq!(chosen(&environment), user("local"), "the first of the data directories");
        place.put("etc/dconf/profile/user", "user-db:etc");
        assert_eq!(chosen(&environment), user("etc"));
        place.put("runtime/dconf/profile", "user-db:session");
        assert_eq!(chosen(&environment), user("session"));
        place.put("share/dconf/profile/mine", "user-db:mine");
        environment.profile = Some("mine".into());
        assert_eq!(chosen(&environment), user("mine"));
        environment.profile = Some(place.0.path().join("share/dconf/profile/mine"));
        assert_eq!(chosen(&environment), user("mine"));
        place.put("mandatory/1000", "user-db:must");
        assert_eq!(chosen(&environment), user("must"), "beats the environment");
        let named = SettingsProfile::choose(&environment, Some(Path::new("mine")));
        assert_eq!(named.databases, user("mine"), "a name given by the program beats all");
    }

    #[test]
    fn a_named_profile_that_is_missing_has_no_databases() {
        let place = SourcePosition::new();
        let mut environment = place.environment();
        environment.profile = Some("gone".into());
        let profile = SettingsProfile::choose(&environment, None);
        assert_eq!(profile.databases, []);
        assert_eq!(
            profile.warnings,
            ["unable to open named profile (gone): using the null configuration."]
        );
    }

    #[test]
    fn a_profile_that_cannot_be_opened_stops_the_search() {
        let place = SourcePosition::new();
        let environment = place.environment();
        place.put("etc/dconf/profile", "a file where a directory should be");
        place.put("share/dconf/profile/user", "user-db:share");
        let profile = SettingsProfile::choose(&environment, None);
        assert_eq!(profile.databases, user("user"));
        let path = place.0.path().join("etc/dconf/profile/user");
        assert_eq!(
            profile.warnings,
            [format!("Unable to open {}: Not a directory", path.display())]
        );
    }

    #[test]
    fn a_database_has_its_file_and_its_object() {
        let place = SourcePosition::new();
        let environment = place.environment();
        let root = place.0.path();
        for (line, file, object) in [
            (
                "user-db:u",
                "config/dconf/u",
                Some((ProfileBus::Session, "/ca/desrt/dconf/Writer/u")),
            ),
            (
                "service-db:shm/u",
                "runtime/dconf-service/shm/u",
                Some((ProfileBus::Session, "/ca/desrt/dconf/shm/u")),
            ),
            (
                "system-db:s",
                "etc/dconf/db/s",
                Some((ProfileBus::System, "/ca/desrt/dconf/Writer/s")),
            ),
        ] {
            let description = Description::parse(line).unwrap();
            assert_eq!(description.file(&environment), root.join(file));
            let object = object.map(|(bus, path): (ProfileBus, &str)| (bus, path.to_owned()));
            assert_eq!(description.object(), object);
        }
        assert_eq!(Description::File("/x".into()).object(), None);
    }
}
