//! The files of which a part consists.

use std::path::{Path, PathBuf};

use jobs::adoption;
use jobs::units::Manager;
use store::trust::{self, ProgramOwner};

use crate::error::SetupError;
use crate::gsettings;
use crate::layout::{SetupLayout, SetupScope};
use crate::part::SetupPart;
use crate::text::{fill, plain};

pub use crate::planned::{PlannedContents, PlannedFile};

/// The file of `environment.d(5)` that has programs load the library of the part `relax`.
pub const RELAX_FILE: &str = "60-unjank-relax.conf";
/// The library of the part `relax`.
pub const RELAX_LIBRARY: &str = "libunjank-relax.so";
/// The variable that names the directory of the lists of recent documents to the library.
pub const RELAX_VARIABLE: &str = "UNJANK_RELAX_DIR";

/// The programs of an installation.
pub(crate) const PROGRAMS: [&str; 4] = ["unjank", "unjankd", "unjank-index", "unjank-host"];
/// What `unjank bench` becomes where packages are made: it is installed if it is there.
const BENCH: &str = "unjank-bench";
/// The program of the part `trace`, which nobody calls by its name: it is beside the libraries.
pub const RECORDER: &str = "unjank-recorder";
/// The action of polkit by which it is decided who uses it.
const ACTION: &str = "org.unjank.recorder.policy";
/// The libraries of an installation: as they are installed, and as cargo names them.
pub(crate) const LIBRARIES: [(&str, &str); 2] =
    [(RELAX_LIBRARY, "libunjank_relax.so"), ("libunjank-writeback.so", "libunjank_writeback.so")];
/// The licences of what is built in.
pub(crate) const NOTICES: &str = "THIRD-PARTY-NOTICES";

/// Where the programs are that the files name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramSource {
    /// They stay where they are installed.
    Installed {
        /// The directory of programs.
        programs: PathBuf,
        /// The directory of libraries.
        libraries: PathBuf,
    },
    /// They are copied from where they were built.
    Built(PathBuf),
}

impl ProgramSource {
    /// Returns where the programs are beside one of them: a build has the libraries of cargo beside it, and what `cargo install`
    /// has installed has none.
    ///
    /// # Errors
    ///
    /// [`SetupError::MissingProgram`] if there is neither an installation nor a build.
    pub fn beside(program: &Path) -> Result<ProgramSource, SetupError> {
        let programs = program.parent().unwrap_or(Path::new("/"));
        let libraries = programs.parent().unwrap_or(Path::new("/")).join("lib/unjank");
        let is_whole = || PROGRAMS.iter().all(|name| programs.join(name).exists());
        let is_alone = || !programs.join("deps").exists() && is_whole();
        if libraries.join(RELAX_LIBRARY).exists() || is_alone() {
            return Ok(ProgramSource::Installed { programs: programs.to_owned(), libraries });
        }
        let source = ProgramSource::Built(programs.to_owned());
        source.built_files(&[]).map(|_| source)
    }

    /// Returns the programs and libraries of a build, and where each is installed.
    fn built_files(&self, layout: &[&SetupLayout]) -> Result<Vec<PlannedFile>, SetupError> {
        let ProgramSource::Built(dir) = self else { return Ok(Vec::new()) };
        let there = |path: PathBuf| match path.exists() {
            true => Ok(path),
            false => Err(SetupError::MissingProgram { path }),
        };
        let mut files = Vec::new();
        let mut add = |from: PathBuf, to: &dyn Fn(&SetupLayout) -> PathBuf, mode| {
            files.extend(layout.iter().map(|layout| PlannedFile {
                part: SetupPart::Programs,
                path: to(layout),
                contents: PlannedContents::CopyOf(from.clone()),
                mode,
            }));
        };
        for name in PROGRAMS {
            add(there(dir.join(name))?, &|layout| layout.programs.join(name), 0o755);
        }
        if let Ok(bench) = there(dir.join(BENCH)) {
            add(bench, &|layout| layout.programs.join(BENCH), 0o755);
        }
        for (name, built) in LIBRARIES {
            add(there(dir.join("deps").join(built))?, &|l| l.libraries.join(name), 0o644);
        }
        if let Ok(notices) = there(dir.join(NOTICES)) {
            add(notices, &|layout| layout.documents.join(NOTICES), 0o644);
        }
        // Of one user there is no system service.
        let of_system = layout.iter().filter(|layout| layout.scope == SetupScope::System);
        if let Ok(recorder) = there(dir.join(RECORDER)) {
            files.extend(of_system.map(|layout| PlannedFile {
                part: SetupPart::Programs,
                path: layout.libraries.join(RECORDER),
                contents: PlannedContents::CopyOf(recorder.clone()),
                mode: 0o755,
            }));
        }
        Ok(files)
    }

    /// Returns the directories of programs and of libraries, as the files name them.
    fn directories<'a>(&'a self, layout: &'a SetupLayout) -> (&'a Path, &'a Path) {
        match self {
            ProgramSource::Installed { programs, libraries } => (programs, libraries),
            ProgramSource::Built(_) => (&layout.programs, &layout.libraries),
        }
    }
}

/// Returns the files of a part, without those of [`SetupPart::Programs`]; none where it has none on this machine.
///
/// # Errors
///
/// [`SetupError::MissingProgram`], [`SetupError::UnusablePath`], and [`SetupError::OpenToOthers`] for what a manager would
/// run again and again although others can change it.
pub fn files_of(
    part: SetupPart,
    layout: &SetupLayout,
    source: &ProgramSource,
) -> Result<Vec<PlannedFile>, SetupError> {
    let (programs, libraries) = source.directories(layout);
    let file = |path: PathBuf, contents: Vec<u8>| PlannedFile {
        part,
        path,
        contents: PlannedContents::Text(contents),
        mode: 0o644,
    };
    let service = |name: &str, template: &str, unit: &str, unit_template: &str| {
        Ok(vec![
            // The service file names the unit, which must be there first.
            file(layout.units.join(unit), fill(unit_template, programs)?),
            file(layout.services.join(name), fill(template, programs)?),
        ])
    };
    match part {
        SetupPart::Settings => service(
            "ca.desrt.dconf.service",
            include_str!("../templates/dbus/ca.desrt.dconf.service.in"),
            "unjank-dconf.service",
            include_str!("../templates/systemd/unjank-dconf.service.in"),
        ),
        SetupPart::Gsettings => {
            let built = match source {
                ProgramSource::Built(directory) => Some(&**directory),
                ProgramSource::Installed { .. } => None,
            };
            gsettings::files(layout, built, programs, libraries)
        }
        SetupPart::Host => service(
            "org.freedesktop.Flatpak.service",
            include_str!("../templates/dbus/org.freedesktop.Flatpak.service.in"),
            "unjank-host.service",
            include_str!("../templates/systemd/unjank-host.service.in"),
        ),
        SetupPart::Listing => service(
            "org.unjank.Session1.service",
            include_str!("../templates/dbus/org.unjank.Session1.service.in"),
            "unjank-session.service",
            include_str!("../templates/systemd/unjank-session.service.in"),
        ),
        SetupPart::Relax => {
            let library = libraries.join(RELAX_LIBRARY);
            let is_installed = matches!(source, ProgramSource::Installed { .. });
            if is_installed && layout.root.is_none() && !library.exists() {
                return Err(SetupError::MissingProgram { path: library });
            }
            let text = relax_environment(&library, &layout.recents)?;
            Ok(vec![file(layout.environment.join(RELAX_FILE), text)])
        }
        SetupPart::Index => index_files(layout, programs),
        SetupPart::Run => run_files(layout, source),
        SetupPart::Hangs => {
            let text = include_str!("../templates/systemd/unjank-hangs.service.in");
            let unit = file(layout.units.join("unjank-hangs.service"), fill(text, programs)?);
            Ok(vec![unit, wanted(part, layout, "default.target", "unjank-hangs.service")])
        }
        SetupPart::HangNotifications => {
            let name = "unjank-hang-notifications.service";
            let text = include_str!("../templates/systemd/unjank-hang-notifications.service.in");
            let unit = file(layout.units.join(name), fill(text, programs)?);
            Ok(vec![unit, wanted(part, layout, "graphical-session.target", name)])
        }
        SetupPart::Trace => trace_files(layout, source),
        SetupPart::Recents => Ok(Vec::new()),
        SetupPart::Programs => source.built_files(&[layout]),
    }
}

/// Returns the text of `environment.d(5)` by which programs load a library before all that others have set.
///
/// # Errors
///
/// [`SetupError::UnusablePath`]: a path means something else there.
pub fn relax_environment(library: &Path, recents: &str) -> Result<Vec<u8>, SetupError> {
    let library = plain(library)?;
    // A variable that the manager of units has set is followed; what is a path is not.
    let is_variable = recents == "${XDG_DATA_HOME:-$HOME/.local/share}";
    let unusable = || SetupError::UnusablePath { path: recents.into() };
    if !is_variable && recents.contains(['"', '\'', '\\', '$', '`', '\n']) {
        return Err(unusable());
    }
    Ok(format!(
        "# Written by unjank; `unjank undo relax` or `unjank recent relax --session off` removes it.\n\
         LD_PRELOAD={library}${{LD_PRELOAD:+:$LD_PRELOAD}}\n\
         {RELAX_VARIABLE}=\"{recents}\"\n"
    )
    .into_bytes())
}

/// Returns the link by which a target starts a unit.
fn wanted(part: SetupPart, layout: &SetupLayout, target: &str, unit: &str) -> PlannedFile {
    let path = layout.units.join(format!("{target}.wants")).join(unit);
    PlannedFile {
        part,
        path,
        contents: PlannedContents::Link(Path::new("..").join(unit)),
        mode: 0o644,
    }
}

fn index_files(layout: &SetupLayout, programs: &Path) -> Result<Vec<PlannedFile>, SetupError> {
    let path = include_str!("../templates/systemd/unjank-index.path.in");
    let applications = match layout.scope {
        SetupScope::User => plain(Path::new(&layout.desktop_files))?,
        SetupScope::System => &layout.desktop_files,
    };
    let path = path
        .replace("@applications@", applications)
        .replace("@triplet@", &format!("{}-linux-gnu", std::env::consts::ARCH));
    let service = include_str!("../templates/systemd/unjank-index.service.in");
    let file = |path: PathBuf, contents| {
        let part = SetupPart::Index;
        PlannedFile { part, path, contents, mode: 0o644 }
    };
    let wanted = |name: &str| wanted(SetupPart::Index, layout, "default.target", name);
    let units = &layout.units;
    let service = PlannedContents::Text(fill(service, programs)?);
    Ok(vec![
        file(units.join("unjank-index.service"), service),
        file(units.join("unjank-index.path"), PlannedContents::Text(path.into_bytes())),
        // At login, too: something may have changed while nobody watched.
        wanted("unjank-index.service"),
        wanted("unjank-index.path"),
    ])
}

/// Returns the files of the recorder service; none for one user, who cannot have a system service.
fn trace_files(
    layout: &SetupLayout,
    source: &ProgramSource,
) -> Result<Vec<PlannedFile>, SetupError> {
    if layout.scope == SetupScope::User {
        return Ok(Vec::new());
    }
    let (_, libraries) = source.directories(layout);
    let program = match source {
        ProgramSource::Built(dir) => dir.join(RECORDER),
        ProgramSource::Installed { libraries, .. } => libraries.join(RECORDER),
    };
    if layout.root.is_none() && !program.exists() {
        return Err(SetupError::MissingProgram { path: program });
    }
    let file = |path: PathBuf, contents| PlannedFile {
        part: SetupPart::Trace,
        path,
        contents,
        mode: 0o644,
    };
    let units = &layout.adopted_units;
    let service = include_str!("../templates/systemd/unjank-recorder.service.in")
        .replace("@libdir@", plain(libraries)?);
    let text = |text: &str| PlannedContents::Text(text.as_bytes().to_vec());
    let socket = "unjank-recorder.socket";
    let link = |target: PathBuf| {
        file(units.join("sockets.target.wants").join(socket), PlannedContents::Link(target))
    };
    // What a package has brought stays the package's: it is switched on alone.
    let packaged = libraries.with_file_name("systemd").join("system").join(socket);
    if matches!(source, ProgramSource::Installed { .. }) && packaged.exists() {
        return Ok(vec![link(packaged)]);
    }
    Ok(vec![
        file(
            layout.actions.join(ACTION),
            text(include_str!("../templates/polkit/org.unjank.recorder.policy")),
        ),
        file(units.join("unjank-recorder.service"), text(&service)),
        file(
            units.join(socket),
            text(include_str!("../templates/systemd/unjank-recorder.socket.in")),
        ),
        link(Path::new("..").join(socket)),
    ])
}

fn run_files(layout: &SetupLayout, source: &ProgramSource) -> Result<Vec<PlannedFile>, SetupError> {
    let manager = match layout.scope {
        SetupScope::User => Manager::User,
        SetupScope::System => Manager::System,
    };
    // A user's own units are in the user's configuration.
    let sources = manager.places(layout.adopted_units.ancestors().nth(2));
    let found = adoption::present(&sources);
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let program = source.directories(layout).0.join("unjank");
    if layout.root.is_none() {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let runner = match layout.scope {
            SetupScope::System => ProgramOwner::ROOT,
            SetupScope::User => ProgramOwner { user: user.as_raw(), group: group.as_raw() },
        };
        let existing = program.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        trust::check(existing, runner).map_err(|source| SetupError::OpenToOthers { source })?;
    }
    let template = adoption::template(&program)
        .map_err(|_| SetupError::UnusablePath { path: program.clone() })?;
    let file = |path: PathBuf, text: String| PlannedFile {
        part: SetupPart::Run,
        path: layout.adopted_units.join(path),
        contents: PlannedContents::Text(text.into_bytes()),
        mode: 0o644,
    };
    let template = file(adoption::TEMPLATE.into(), template);
    let drop_ins = found.into_iter().map(adoption::drop_in_path);
    Ok([template].into_iter().chain(drop_ins.map(|path| file(path, adoption::drop_in()))).collect())
}

/// Says whether an installation of ours puts files at such a path: a manifest that names another one is not followed.
pub(crate) fn is_our_path(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let dir = |depth: usize| {
        path.ancestors().nth(depth).and_then(Path::file_name).and_then(|name| name.to_str())
    };
    let is_unit = |name: &str| name.starts_with("unjank-") && !name.contains('/');
    match (dir(2), dir(1)) {
        (Some("dbus-1"), Some("services")) => {
            let names = SetupPart::ALL.into_iter().filter_map(SetupPart::bus_name);
            names.into_iter().any(|bus| name == format!("{bus}.service"))
        }
        (Some("systemd"), Some("user" | "system")) => is_unit(name),
        (
            _,
            Some(
                "default.target.wants" | "graphical-session.target.wants" | "sockets.target.wants",
            ),
        ) => is_unit(name),
        (Some("polkit-1"), Some("actions")) => name == ACTION,
        (_, Some(unit)) if unit.strip_suffix(".d").is_some_and(is_known) => {
            name == adoption::DROP_IN
        }
        (_, Some("environment.d")) => [RELAX_FILE, gsettings::GSETTINGS_FILE].contains(&name),
        (_, Some("bin")) => name == BENCH || PROGRAMS.contains(&name),
        (Some("unjank"), Some(gsettings::DIRECTORY)) => {
            [gsettings::GSETTINGS_MODULE, gsettings::CACHE].contains(&name)
        }
        (Some("lib"), Some("unjank")) => {
            name == RECORDER || LIBRARIES.iter().any(|(library, _)| name == *library)
        }
        (Some("doc"), Some("unjank")) => name == NOTICES,
        _ => false,
    }
}

fn is_known(unit: &str) -> bool {
    jobs::units::KNOWN.contains(&unit)
}

/// Says whether nothing but `unjank setup` puts these contents at such a path: the manifest that recorded them is lost.
///
/// Where something else does, what is there is not ours to take away: packages, `unjank recent relax --session on`,
/// `unjank run --adopt-units`, `cargo install`, and `systemctl enable`, whose links are absolute.
pub(crate) fn is_of_setup_alone(layout: &SetupLayout, file: &PlannedFile) -> bool {
    let is_packaged = layout.scope == SetupScope::System
        && layout.root.is_none()
        && file.path.starts_with("/usr")
        && !file.path.starts_with("/usr/local");
    let is_absolute_link =
        matches!(&file.contents, PlannedContents::Link(target) if target.is_absolute());
    let parts_of_others = [SetupPart::Relax, SetupPart::Run, SetupPart::Programs];
    !is_packaged && !is_absolute_link && !parts_of_others.contains(&file.part)
}

/// Says whether a text that no manifest records is like those of ours: it is replaced without being asked, and kept.
///
/// A program never is: who has installed it brings it up to date.
pub(crate) fn is_ours(path: &Path, contents: &[u8]) -> bool {
    let has = |part: &[u8]| contents.windows(part.len()).any(|window| window == part);
    let first = |mark: &str| contents.starts_with(mark.as_bytes());
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("service") => {
            first(adoption::MARK)
                || has(b"/unjankd --names ")
                || has(b"/unjank-index\n")
                || has(b"/unjank hangs record\n")
                || has(b"/unjank hangs watch --notify\n")
                || has(b"/unjank-recorder\n")
        }
        Some("socket") => has(b"ListenSequentialPacket=/run/unjank/recorder.sock\n"),
        Some("policy") => has(b"<vendor>unjank</vendor>"),
        Some("path") => has(b"Description=Plugins and applications that come or go\n"),
        Some("conf") => {
            first(adoption::MARK) || first("# Written by unjank") || first("# Written by `unjank ")
        }
        Some("cache") => contents == gsettings::CACHE_TEXT.as_bytes(),
        _ => path.file_name().is_some_and(|name| name == NOTICES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::SessionDirectories;

    fn layout() -> SetupLayout {
        SetupLayout::of_user(&SessionDirectories {
            home: "/home/ana".into(),
            config: "/home/ana/.config".into(),
            data: "/home/ana/.local/share".into(),
            state: "/home/ana/.local/state".into(),
        })
    }

    fn installed() -> ProgramSource {
        ProgramSource::Installed {
            programs: "/usr/bin".into(),
            libraries: "/usr/lib/unjank".into(),
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
    fn every_file_of_every_part_is_one_that_a_manifest_may_name() {
        let built = tempfile::tempdir().unwrap();
        for name in [gsettings::GSETTINGS_MODULE, RECORDER] {
            std::fs::write(built.path().join(name), "built").unwrap();
        }
        for layout in [layout(), SetupLayout::of_system(Path::new("/usr/local"))] {
            for part in SetupPart::ALL {
                if part == SetupPart::Run {
                    continue;
                }
                let source = match part {
                    SetupPart::Gsettings | SetupPart::Trace | SetupPart::Relax => {
                        ProgramSource::Built(built.path().to_owned())
                    }
                    _ => installed(),
                };
                for file in files_of(part, &layout, &source).unwrap() {
                    assert!(is_our_path(&file.path), "{:?}", file.path);
                    if let PlannedContents::Text(text) = &file.contents {
                        assert!(is_ours(&file.path, text), "{:?}", file.path);
                        let text = String::from_utf8_lossy(text);
                        let left = ["@bindir@", "@libdir@", "@applications@", "@triplet@"];
                        assert!(!left.iter().any(|name| text.contains(name)), "{:?}", file.path);
                    }
                }
            }
        }
        for other in ["/home/ana/.ssh/authorized_keys", "/etc/passwd", "/x/systemd/user/a.service"]
        {
            assert!(!is_our_path(Path::new(other)), "{other}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a fixture need not be durable")]
    fn what_cargo_has_installed_is_used_where_it_is_without_libraries() {
        let root = tempfile::tempdir().unwrap();
        let programs = root.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        let beside = || ProgramSource::beside(&programs.join("unjank"));
        for name in PROGRAMS {
            assert!(matches!(beside(), Err(SetupError::MissingProgram { .. })), "without {name}");
            std::fs::write(programs.join(name), "built").unwrap();
        }
        let source = beside().unwrap();
        for part in SetupPart::ALL {
            let planned = files_of(part, &layout(), &source);
            match part {
                // What needs a library says so.
                SetupPart::Relax => {
                    assert!(matches!(planned, Err(SetupError::MissingProgram { .. })));
                }
                SetupPart::Gsettings => {
                    assert!(matches!(planned, Err(SetupError::MissingModule { .. })));
                }
                // The program is in no directory that root alone can change.
                SetupPart::Run => {}
                _ => assert!(
                    planned.unwrap().iter().all(|file| match &file.contents {
                        PlannedContents::Text(text) => {
                            let text = String::from_utf8_lossy(text);
                            !text.contains("/unjank") || text.contains(programs.to_str().unwrap())
                        }
                        PlannedContents::CopyOf(_) | PlannedContents::Link(_) => true,
                    }),
                    "{part:?}"
                ),
            }
        }
        assert_eq!(files_of(SetupPart::Programs, &layout(), &source).unwrap(), [], "copied");
        // A build that lacks its libraries is no installation.
        std::fs::create_dir(programs.join("deps")).unwrap();
        assert!(matches!(beside(), Err(SetupError::MissingProgram { .. })));
    }

    #[test]
    fn a_library_that_others_preload_is_kept() {
        let text = relax_environment(Path::new("/l/x.so"), "/home/ána b/data").unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("LD_PRELOAD=/l/x.so${LD_PRELOAD:+:$LD_PRELOAD}\n"), "{text}");
        assert!(text.contains("UNJANK_RELAX_DIR=\"/home/ána b/data\"\n"), "{text}");
        for strange in ["/a\"b", "/a$b", "/a\nb", "/a`b"] {
            assert!(relax_environment(Path::new("/l/x.so"), strange).is_err(), "{strange}");
        }
    }
}
