//! The service as a process of its own, and users as processes of theirs: this program again, in another role.
#![allow(clippy::unwrap_used, reason = "what cannot be set up fails the test")]
#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "a test stands for programs")]

pub(crate) mod interactive;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use trace::backend::bpf::programs::{KernelStacks, WakeupPolicy, WatchedThreads};
use trace::backend::bpf::served::protocol::AuthorizationPrompt;
use trace::backend::bpf::served::{RecorderConnection, ServedError, ServedSession};
use trace::backend::bpf::session::BpfSettings;
use trace::syscall_set::Set;

/// Users who are nobody else here.
pub(crate) const ANN: u32 = 64_123;
/// See [`ANN`].
pub(crate) const BOB: u32 = 64_124;
/// A user for one test alone: hangs of other tests are not counted with its own.
pub(crate) const CAROL: u32 = 64_125;
/// The group whose members are served; Ann, Bob and Carol are in it.
pub(crate) const STAFF: u32 = 64_200;
/// The user of the service.
const SERVICE: u32 = 64_300;

/// The variable that says which role this program plays.
const ROLE: &str = "UNJANK_TEST_ROLE";
/// The variable that says where the service listens.
const SOCKET: &str = "UNJANK_TEST_SOCKET";
/// The variable with what else a role has to know.
const DETAIL: &str = "UNJANK_TEST_DETAIL";

/// How long something may take on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("REQUIRE_ALL").is_none(), "REQUIRE_ALL: {why}");
    eprintln!("SKIPPED: {why}");
}

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "it took over {LONG:?} until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The service, and a directory that all users can read.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) service: Child,
    program: PathBuf,
    /// The user of the service, and its arguments.
    served_as: (u32, Vec<String>),
}

/// A process that ends with the test.
pub(crate) struct Daemon(pub(crate) Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A user at work; killed if the test ends first.
pub(crate) struct Actor {
    pub(crate) child: Child,
    said: BufReader<ChildStdout>,
    role: String,
}

impl Stage {
    /// Starts the service without polkit, for the members of [`STAFF`]; none where nobody can load programs into the kernel.
    pub(crate) fn set() -> Option<Stage> {
        Stage::set_with(&["--bus", "unix:path=/nowhere/at/all"])
    }

    /// Starts it with these arguments beside `--socket` and `--group`.
    pub(crate) fn set_with(arguments: &[&str]) -> Option<Stage> {
        Stage::set_as(SERVICE, arguments)
    }

    /// Starts it as a user, with two capabilities even if that is root.
    pub(crate) fn set_as(user: u32, arguments: &[&str]) -> Option<Stage> {
        if !rustix::process::geteuid().is_root() {
            skip("only root can be several users");
            return None;
        }
        if !trace::backend::bpf::is_allowed() {
            skip("no programs can be loaded into this kernel");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // Another process copies it: what is open for writing anywhere cannot be run.
        let program = dir.path().join("program");
        let from = std::env::current_exe().unwrap();
        assert!(Command::new("cp").arg(from).arg(&program).status().unwrap().success());
        let run = dir.path().join("run");
        std::fs::create_dir(&run).unwrap();
        chown(&run, Some(user), Some(user)).unwrap();
        let socket = run.join("socket");
        let group = STAFF.to_string();
        let mut words = vec!["--socket", socket.to_str().unwrap(), "--group", &group];
        words.extend(arguments);
        let served_as = (user, words.into_iter().map(str::to_owned).collect());
        let service = start_service(dir.path(), &program, &served_as);
        let mut stage = Stage { dir, service, program, served_as };
        stage.wait_for_service();
        Some(stage)
    }

    /// Starts the service again, which has ended.
    pub(crate) fn start_service(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        self.service = start_service(self.dir.path(), &self.program, &self.served_as);
        self.wait_for_service();
    }

    fn wait_for_service(&mut self) {
        wait_until("the service listens", || {
            let ended = self.service.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", self.log());
            self.socket().exists() && self.log().contains("serves")
        });
    }

    /// Returns a directory in which a user may do what he wants.
    pub(crate) fn dir_of(&self, user: u32) -> PathBuf {
        let dir = self.dir.path().join(user.to_string());
        if std::fs::create_dir(&dir).is_ok() {
            chown(&dir, Some(user), Some(user)).unwrap();
            std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
        }
        dir
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("run/socket")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// How many programs the service has in the kernel.
    pub(crate) fn programs(&self) -> usize {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.service.id())).unwrap();
        let links = links.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().contains("bpf-prog")).count()
    }

    /// How many connections the service has, beside the socket at which it listens.
    pub(crate) fn connections(&self) -> usize {
        let links = std::fs::read_dir(format!("/proc/{}/fd", self.service.id())).unwrap();
        let links = links.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count() - 1
    }

    /// Returns a command as a user, in the group of those who are served.
    pub(crate) fn command_of(&self, user: u32, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        let (user, group) = (user.to_string(), STAFF.to_string());
        command.args(["--reuid", &user, "--regid", &user, "--groups", &group]).arg(program);
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Starts a role as a user.
    pub(crate) fn start(&self, user: u32, role: &str, detail: &str) -> Actor {
        let mut command = self.command_of(user, &self.program);
        self.begin(&mut command, role, detail)
    }

    /// Starts a role by a command that ends with this program, whose path is `{}`.
    pub(crate) fn start_by(&self, words: &[&str], role: &str, detail: &str) -> Actor {
        let path = self.program.to_str().unwrap();
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "{}" { path } else { word }).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.begin(&mut command, role, detail)
    }

    fn begin(&self, command: &mut Command, role: &str, detail: &str) -> Actor {
        let mut child = command
            .args(ACTING)
            .env(ROLE, role)
            .env(SOCKET, self.socket())
            .env(DETAIL, detail)
            // Directories that cargo adds may be closed to other users: a program would search them with other calls.
            .env_remove("LD_LIBRARY_PATH")
            .current_dir("/")
            .env("PWD", "/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Actor { child, said, role: role.to_owned() }
    }

    /// Plays a role to its end, and returns what it said.
    pub(crate) fn play(&self, user: u32, role: &str, detail: &str) -> Vec<String> {
        self.start(user, role, detail).end()
    }

    /// Copies a program to the directory that all can read, with these permissions, as root's.
    pub(crate) fn copy(&self, from: &str, name: &str, mode: u32) -> PathBuf {
        let to = self.dir.path().join(name);
        assert!(Command::new("cp").arg(from).arg(&to).status().unwrap().success());
        std::fs::set_permissions(&to, PermissionsExt::from_mode(mode)).unwrap();
        to
    }
}

fn start_service(dir: &Path, program: &Path, (user, words): &(u32, Vec<String>)) -> Child {
    let (user, capabilities) = (user.to_string(), "-all,+bpf,+perfmon");
    Command::new("setpriv")
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--no-new-privs"])
        .args(["--inh-caps", capabilities, "--ambient-caps", capabilities])
        .args(["--bounding-set", capabilities])
        .arg(program)
        .args(ACTING)
        .env(ROLE, "service")
        .env(DETAIL, words.join("\n"))
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(dir.join("log")).unwrap())
        .spawn()
        .unwrap()
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.service.kill();
        let _ = self.service.wait();
        if std::thread::panicking() {
            eprintln!("the service said:\n{}", self.log());
        }
    }
}

impl Actor {
    /// Returns the next line that the role says; those of the test's frame are left out.
    pub(crate) fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(said) = line.trim_end().split_once(MARK) {
                return Some(said.1.to_owned());
            }
        }
    }

    /// Lets the role go on that waits in [`pause`].
    pub(crate) fn go_on(&mut self) {
        use std::io::Write;
        self.child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    pub(crate) fn status(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Waits for the end, which must be a good one.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let lines = std::iter::from_fn(|| self.line()).collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}: {status}, {lines:?}", self.role);
        lines
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The arguments by which this program plays a role.
const ACTING: [&str; 3] = ["--exact", "stage::act", "--nocapture"];
/// What is said begins with it.
const MARK: &str = "SAID:";

/// Says something to the test.
pub(crate) fn say(text: impl std::fmt::Display) {
    use std::io::Write;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "\n{MARK}{text}");
    let _ = out.flush();
}

/// Waits until the test lets the role go on; says whether it does.
pub(crate) fn pause() -> bool {
    std::io::stdin().read(&mut [0]).unwrap() == 1
}

/// Where the service listens, in a role.
pub(crate) fn socket() -> PathBuf {
    std::env::var_os(SOCKET).unwrap().into()
}

/// What else a role has to know.
pub(crate) fn detail() -> String {
    std::env::var(DETAIL).unwrap()
}

pub(crate) fn connect() -> Result<RecorderConnection, ServedError> {
    RecorderConnection::connect(&socket(), AuthorizationPrompt::Unwanted)
}

/// Begins a session for all calls, each of which is reported with its stack.
pub(crate) fn open() -> Result<ServedSession, ServedError> {
    connect()?.open(&BpfSettings {
        calls: &Set::all(),
        threshold_ns: 0,
        kept: &[],
        threads: WatchedThreads::All,
        stacks: KernelStacks::Copied,
        ring_bytes: 1 << 20,
        wakes: WakeupPolicy::Paced,
        owner: None,
    })
}

/// The other processes of the tests are this one in a role; without one there is nothing to test.
#[test]
fn act() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "service" => {
            let words = detail().lines().map(Into::into).collect();
            let code = unjank_recorder::program::run(words);
            assert_eq!(code, std::process::ExitCode::SUCCESS);
        }
        "trace" => crate::traces::trace_command(),
        "attach" => crate::traces::attach(),
        "refused" => crate::rights::refused(),
        "denied" => crate::rights::denied(),
        "hold" => crate::limits::hold(),
        "flood" => crate::limits::flood(),
        "crowd" => crate::limits::crowd(),
        "hoard" => crate::events::hoard(),
        "garbage" => crate::hostile::garbage(),
        "record" => crate::hangs::record_hangs(),
        "events" => crate::events::events(),
        "marks" => crate::marks::marks(),
        "waits" => crate::marks::waits(),
        "hostile marks" => crate::marks::hostile_marks(),
        other => panic!("there is no role {other}"),
    }
}
