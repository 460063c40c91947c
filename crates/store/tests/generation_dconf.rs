//! The flag between us and the real dconf: its readers see ours, ours sees its service's.
#![expect(clippy::unwrap_used, reason = "a test that fails here has failed")]
#![expect(
    clippy::disallowed_methods,
    reason = "whether a skip is a failure is asked of the environment"
)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use unjank_store::disk;
use unjank_store::generation::{Flag, Raised, raise};
use unjank_store::publish::publish;

/// The database with `/a/b` = int32 `value`, as the reference gives its bytes.
fn image(value: u8) -> Vec<u8> {
    let hex = "4756617269616e74000000000000000018000000740000000000002803000000000000000000\
        0000010000006678787c01000000740000000100760078000000\
        7e0000008487870b020000007e00000002004c008000000084000000d4b50200ffffffff840000000100\
        4c0088000000\
        8c0000006200000001000000006961\
        2f000000002f00000001000000";
    let hex: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut bytes: Vec<u8> = hex
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect();
    assert_eq!(bytes.len(), 140);
    bytes[120] = value;
    bytes
}

/// Says why a test cannot run here; a failure if nothing may be skipped.
#[expect(clippy::print_stdout, reason = "a skip is loud")]
fn skipped(why: &str) {
    println!("SKIPPED: {why}");
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL is set, and: {why}");
}

/// The directories of a private session.
struct Session {
    dir: tempfile::TempDir,
}

impl Session {
    fn new() -> Session {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk::real();
        publish(&*disk, &dir.path().join("profile"), b"user-db:user\n").unwrap();
        publish(&*disk, &dir.path().join("config/dconf/user"), &image(1)).unwrap();
        disk.create_dir(&dir.path().join("run"), 0o700).unwrap();
        Session { dir }
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("config/dconf/user")
    }

    fn flag(&self) -> PathBuf {
        self.dir.path().join("run/dconf/user")
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("XDG_CONFIG_HOME", self.dir.path().join("config"))
            .env("XDG_RUNTIME_DIR", self.dir.path().join("run"))
            .env("XDG_CACHE_HOME", self.dir.path().join("cache"))
            .env("DCONF_PROFILE", self.dir.path().join("profile"))
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent");
        command
    }
}

/// A process that reads `/a/b` through libdconf.
struct Reader {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Reader {
    fn new(session: &Session) -> Result<Reader, String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generation_reader/reader.c");
        let binary = session.dir.path().join("reader");
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "dconf"])
            .output()
            .ok()
            .filter(|output| output.status.success())
            .ok_or("pkg-config does not know dconf (libdconf-dev)")?;
        let flags = String::from_utf8(flags.stdout).unwrap();
        let built = Command::new("gcc")
            .arg("-o")
            .arg(&binary)
            .arg(source)
            .args(flags.split_whitespace())
            .status()
            .map_err(|_| "no gcc")?;
        assert!(built.success(), "the reader does not build");
        let mut child =
            session.command(&binary).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Ok(Reader { child, questions, answers })
    }

    fn read(&mut self) -> String {
        self.questions.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.questions = None;
        self.child.wait().unwrap();
    }
}

#[test]
fn a_reader_of_the_real_libdconf_opens_the_database_again_when_told() {
    let session = Session::new();
    let disk = disk::real();
    let mut reader = match Reader::new(&session) {
        Ok(reader) => reader,
        Err(why) => return skipped(&why),
    };
    assert_eq!(reader.read(), "1");
    for value in 2..5 {
        publish(&*disk, &session.database(), &image(value)).unwrap();
        let before = (value - 1).to_string();
        assert_eq!(reader.read(), before, "a reader that was not told has the old image mapped");
        assert_eq!(raise(&session.flag()).unwrap(), Raised::Told);
        assert!(!session.flag().exists());
        assert_eq!(reader.read(), value.to_string());
        assert!(session.flag().exists(), "the reader waits for the next change");
    }
}

#[test]
fn a_flag_that_readers_cannot_use_is_repaired_for_them() {
    let session = Session::new();
    let disk = disk::real();
    let mut reader = match Reader::new(&session) {
        Ok(reader) => reader,
        Err(why) => return skipped(&why),
    };
    disk.create_dir(session.flag().parent().unwrap(), 0o700).unwrap();
    disk.create_dir(&session.flag(), 0o700).unwrap();
    assert_eq!(reader.read(), "1");
    publish(&*disk, &session.database(), &image(2)).unwrap();
    assert_eq!(reader.read(), "2", "without a flag it opens the database at each read");
    assert_eq!(raise(&session.flag()).unwrap(), Raised::Repaired);
    assert_eq!(reader.read(), "2");
    assert!(session.flag().is_file(), "the reader has a flag that works");
    publish(&*disk, &session.database(), &image(3)).unwrap();
    assert_eq!(raise(&session.flag()).unwrap(), Raised::Told);
    assert_eq!(reader.read(), "3");
}

#[test]
fn the_real_service_raises_our_flag() {
    let session = Session::new();
    let flag = Flag::arm(&session.flag());
    assert!(!flag.is_raised());
    // A session bus of its own, which starts the installed service for the writer.
    let written = session
        .command("dbus-run-session")
        .env_remove("DBUS_SESSION_BUS_ADDRESS")
        .args(["--", "dconf", "write", "/a/b", "5"])
        .status();
    match written {
        Ok(status) if status.success() => {}
        Ok(_) => return skipped("dconf write on a private bus failed: no dconf-service?"),
        Err(_) => return skipped("no dbus-run-session"),
    }
    assert!(flag.is_raised());
    assert!(!Flag::arm(&session.flag()).is_raised());
}
