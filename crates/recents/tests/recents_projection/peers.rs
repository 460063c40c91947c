//! Programs of GTK's and KDE's, built from our own sources, in a home of their own.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "what cannot be set up fails the test; it stands for other programs"
)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use sys::clock::SystemClock;
use unjank_recents::policy::RetentionVerdict;
use unjank_recents::{
    Addition, Privacy, RecentTime, Recents, RecentsFiles, RememberingProgram, Uri,
};

/// The programs.
#[derive(Debug)]
pub struct Peers {
    pub gtk: PathBuf,
    pub kde: PathBuf,
    display: String,
}

/// Returns the programs; `None`, said aloud, if they cannot be built here.
pub fn peers() -> Option<&'static Peers> {
    static BUILT: OnceLock<Result<Peers, String>> = OnceLock::new();
    match BUILT.get_or_init(build) {
        Ok(peers) => Some(peers),
        Err(why) => {
            assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn build() -> Result<Peers, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recents");
    std::fs::create_dir_all(&out).map_err(|error| error.to_string())?;
    let flags = output(Command::new("pkg-config").args(["--cflags", "--libs", "gtk+-3.0"]))?;
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let gtk = compile("gcc", &root.join("recent_gtk.c"), &out.join("recent_gtk"), &flags)?;
    let qt = output(Command::new("pkg-config").args(["--cflags", "Qt5Core"]))?;
    let mut flags: Vec<String> = qt.split_whitespace().map(String::from).collect();
    for part in ["KIOCore", "KCoreAddons", "KService", "KConfigCore", "KConfig"] {
        flags.extend(["-isystem".into(), format!("/usr/include/KF5/{part}")]);
    }
    flags.extend(["-fPIC", "-lKF5KIOCore", "-lQt5Core"].map(String::from));
    let flags: Vec<&str> = flags.iter().map(|flag| &**flag).collect();
    let kde = compile("g++", &root.join("recent_kde.cpp"), &out.join("recent_kde"), &flags)?;
    Ok(Peers { gtk, kde, display: display()? })
}

/// Starts a display for GTK's programs, which ends with this process.
fn display() -> Result<String, String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    // The server ends with the thread that started it, and that one lives as long as the process.
    std::thread::spawn(move || {
        let _ = sender.send(start_display());
        loop {
            std::thread::park();
        }
    });
    receiver.recv().map_err(|error| error.to_string())?
}

fn start_display() -> Result<String, String> {
    let mut server = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "Xvfb", "-displayfd", "1", "-nolisten", "tcp"])
        // A server that begins anew after its last client turns away the next one.
        .args(["-noreset", "-screen", "0", "64x64x8"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("setpriv: {error}"))?;
    let mut number = String::new();
    let out = server.stdout.take().ok_or("no output of Xvfb")?;
    BufReader::new(out).read_line(&mut number).map_err(|error| error.to_string())?;
    match number.trim() {
        "" => Err("Xvfb does not start".into()),
        number => Ok(format!(":{number}")),
    }
}

fn compile(compiler: &str, source: &Path, to: &Path, flags: &[&str]) -> Result<PathBuf, String> {
    // Another run may be using the last one.
    let temporary = to.with_extension(std::process::id().to_string());
    output(Command::new(compiler).arg("-O1").arg(source).arg("-o").arg(&temporary).args(flags))?;
    std::fs::rename(&temporary, to).map_err(|error| error.to_string())?;
    Ok(to.to_owned())
}

/// Runs a program to its end and returns what it printed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A home with nothing in it.
#[derive(Debug)]
pub struct Home {
    pub dir: tempfile::TempDir,
    pub places: RecentsFiles,
}

impl Home {
    pub fn new() -> Home {
        use std::os::unix::fs::PermissionsExt;

        // What is hidden is not remembered, and a temporary directory usually is.
        let dir = tempfile::Builder::new().prefix("home").tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["data", "tmp", "run", "docs"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        std::fs::set_permissions(at("run"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let places = RecentsFiles {
            state: at("state"),
            runtime: None,
            xbel: at("data/recently-used.xbel"),
            links: at("data/RecentDocuments"),
            data: at("data"),
            config: at("config"),
            config_dirs: Vec::new(),
            cache: at("cache"),
            home: dir.path().to_owned(),
            temporary: at("tmp"),
            dconf: Vec::new(),
        };
        Home { dir, places }
    }

    /// A program of ours.
    pub fn recents(&self) -> Recents {
        let clock = Arc::new(SystemClock::start());
        Recents::new(self.places.clone(), RememberingProgram::Ordinary, store::disk::real(), clock)
    }

    /// Another's program, that sees this home and nothing else.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("DISPLAY", peers().map_or("", |peers| &peers.display))
            .env("GDK_BACKEND", "x11")
            .env("HOME", self.dir.path())
            .env("TMPDIR", &self.places.temporary)
            .env("XDG_DATA_HOME", &self.places.data)
            .env("XDG_CONFIG_HOME", &self.places.config)
            .env("XDG_CACHE_HOME", &self.places.cache)
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"));
        command
    }

    pub fn run(&self, program: &Path, arguments: &[&str]) -> String {
        output(self.command(program).args(arguments)).unwrap()
    }

    pub fn start(&self, program: &Path, arguments: &[&str]) -> Child {
        let mut command = self.command(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Makes a file, so that KDE lists it.
    pub fn file(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join("docs").join(name);
        std::fs::write(&path, "text").unwrap();
        path
    }
}

/// An addition by a program of ours, now.
pub fn addition(recents: &Recents, path: &Path) -> Addition {
    Addition {
        uri: Uri::of_path(path).unwrap(),
        mime: Some("text/plain".into()),
        groups: vec!["Office".into()],
        privacy: Privacy::Public,
        application: "org.kde.okular".into(),
        exec: "okular %U".into(),
        at: recents.now(),
    }
}

pub fn add(recents: &mut Recents, path: &Path) {
    let addition = addition(recents, path);
    assert_eq!(recents.decide(&addition), RetentionVerdict::Remember);
    recents.add(&addition).unwrap();
}

/// Returns the list as `recent_gtk read` prints a file.
pub fn printed(recents: &mut Recents) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in recents.list().unwrap().iter() {
        let mut of_one = format!("uri {}\n", entry.uri);
        for (kind, RecentTime(at)) in
            [("added", entry.added), ("modified", entry.modified), ("visited", entry.visited)]
        {
            of_one.push_str(&format!(" {kind} {at}\n"));
        }
        entry.mime.iter().for_each(|mime| of_one.push_str(&format!(" mime {mime}\n")));
        entry.title.iter().for_each(|title| of_one.push_str(&format!(" title {title}\n")));
        entry.groups.iter().for_each(|group| of_one.push_str(&format!(" group {group}\n")));
        for one in &entry.applications {
            // GLib gives the command line with the URI in its place, and takes quotes off as a shell does.
            let exec = one.exec.trim_matches('\'').replace("%U", entry.uri.as_str());
            let exec = exec.replace("%u", entry.uri.as_str());
            let RecentTime(at) = one.modified;
            of_one
                .push_str(&format!(" application {} | {exec} | {} | {at}\n", one.name, one.count));
        }
        lines.push(of_one);
    }
    lines.sort();
    lines
}
