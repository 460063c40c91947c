//! Who calls: the application behind a process, from what the kernel and the host know of it and never from what it says.

mod client;
mod instances;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::client::is_proxy;
use self::instances::{Belongs, Instance};
use super::process::Stat;
use crate::keyfile::KeyFile;

pub use self::client::{CallTraits, Client, TerminalFile};
pub use self::instances::Speaks;

/// The longest file of a process that is looked at.
const MOST_BYTES: u64 = 64 << 10;
/// The program through which sandboxes reach the bus.
const PROXY: &str = "xdg-dbus-proxy";

/// What kind of program calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Application {
    /// A program that sees the files of the host, as this service does.
    Host,
    /// An application of Flatpak.
    Flatpak {
        /// Its name, as `org.vim.Vim`.
        id: String,
        /// The number of its running instance.
        instance: Option<String>,
    },
    /// An application of Snap.
    Snap {
        /// The name of the snap.
        id: String,
    },
    /// A program with files of its own that is neither: a container, a service with a private directory.
    Other,
}

impl Application {
    /// Returns the name of its section in the policy: `host`, the name of the application, `snap.NAME` or `other`.
    #[must_use]
    pub fn policy_name(&self) -> String {
        match self {
            Application::Host => "host".to_owned(),
            Application::Flatpak { id, .. } => id.clone(),
            Application::Snap { id } => format!("snap.{id}"),
            Application::Other => "other".to_owned(),
        }
    }

    fn is_flatpak(&self, name: &str) -> bool {
        matches!(self, Application::Flatpak { id, .. } if id == name)
    }
}

/// A process that called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its number, as the host counts.
    pub pid: u32,
    /// What it belongs to.
    pub application: Application,
    /// Its executable as it sees it, if that could be read.
    pub exe: Option<PathBuf>,
    /// Whether it passes on what others say.
    pub speaks: Speaks,
}

/// Why a process is nobody whom we would serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It says that it is an application, and the host knows better.
    #[error("cannot believe process {pid}: it seems to be {said}, and {known}")]
    Forged {
        /// Its number.
        pid: u32,
        /// What its files say.
        said: String,
        /// What the host knows.
        known: String,
    },
    /// It has ended, or hides.
    #[error("cannot find out what process {pid} is")]
    Unknown {
        /// Its number.
        pid: u32,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What the kernel and the host tell of a process, and where; a test has its own.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where `/proc` is.
    pub proc: PathBuf,
    /// Where Flatpak keeps its running instances: `.flatpak` in the runtime directory.
    pub instances: PathBuf,
}

impl Host {
    /// This machine, for the user of this runtime directory.
    #[must_use]
    pub fn real(runtime_dir: &Path) -> Host {
        Host { proc: "/proc".into(), instances: runtime_dir.join(".flatpak") }
    }

    /// Says whether `pid` sees the same files as this process, which takes no look at files of its own.
    ///
    /// # Errors
    ///
    /// It has ended, or hides.
    pub fn shares_our_files(&self, pid: u32) -> io::Result<bool> {
        let own = std::fs::read_link(self.proc.join("self/ns/mnt"))?;
        Ok(std::fs::read_link(self.of(pid, "ns/mnt"))? == own)
    }

    /// Returns when `pid` began, in ticks since the machine did.
    #[must_use]
    pub fn began(&self, pid: u32) -> Option<u64> {
        Stat::within(&self.proc, pid).map(|stat| stat.began)
    }

    /// Says how many connections to the bus of process `bus` the process `pid` holds.
    ///
    /// A bus that says of a caller only which number its process had may mean one that has ended since; whoever has the number
    /// now does not hold that connection.
    ///
    /// # Errors
    ///
    /// One has ended or hides, or the kernel does not tell which sockets are connected.
    pub fn connections_to(&self, bus: u32, pid: u32) -> io::Result<usize> {
        let peers = sys::unix_sockets::peers()?;
        let of_bus = self.sockets(bus)?;
        let clients: HashSet<u64> =
            of_bus.iter().filter_map(|socket| peers.get(socket)).copied().collect();
        Ok(self.sockets(pid)?.iter().filter(|socket| clients.contains(socket)).count())
    }

    /// Returns the numbers of the sockets that a process holds.
    fn sockets(&self, pid: u32) -> io::Result<HashSet<u64>> {
        let number = |entry: io::Result<std::fs::DirEntry>| {
            let link = std::fs::read_link(entry.ok()?.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        Ok(std::fs::read_dir(self.of(pid, "fd"))?.filter_map(number).collect())
    }

    /// Finds out what `pid` belongs to.
    ///
    /// It may take as long as the file systems of the process want: where those are its own, that may be for ever.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if it has ended, [`IdentityError::Forged`] if it says what is not so.
    pub fn identify(&self, pid: u32) -> Result<Caller, IdentityError> {
        match self.recognize(pid)? {
            Some(caller) => Ok(caller),
            None => self.look_inside(pid),
        }
    }

    /// Finds out what `pid` belongs to from what the kernel and the host know, which takes no look at files of its own;
    /// `None` if neither knows it. What is left then is [`Host::look_inside`].
    ///
    /// An application of Flatpak is known by the mounts, the process namespace and the pipes that the host wrote down when
    /// its sandbox was made, and by the control group that it was put into.
    ///
    /// # Errors
    ///
    /// As [`Host::identify`].
    pub fn recognize(&self, pid: u32) -> Result<Option<Caller>, IdentityError> {
        let unknown = |source| IdentityError::Unknown { pid, source };
        let exe = self.exe(pid);
        let speaks = if is_proxy(exe.as_deref()) { Speaks::ForOthers } else { Speaks::ForItself };
        let shares_ours = self.shares_our_files(pid).map_err(unknown)?;
        let caller = |application| Ok(Some(Caller { pid, application, exe, speaks }));
        // What speaks for others is no program of the host, whatever files it sees itself.
        if shares_ours && speaks == Speaks::ForItself {
            return caller(Application::Host);
        }
        let scope = self.scope(pid).map_err(unknown)?;
        let belongs = Belongs::read(self, pid, speaks);
        match (Instance::of(self, &belongs), scope) {
            (Some(instance), Some(known)) if !known.is_flatpak(&instance.id) => {
                Err(IdentityError::Forged {
                    pid,
                    said: format!("{:?}", instance.id),
                    known: format!("it runs in the scope of {:?}", known.policy_name()),
                })
            }
            (Some(Instance { id, number, .. }), _) => {
                caller(Application::Flatpak { id, instance: Some(number) })
            }
            (None, Some(scope)) => caller(scope),
            (None, None) if shares_ours => caller(Application::Other),
            (None, None) => Ok(None),
        }
    }

    /// Looks at what a process that nobody knows says of itself: nothing, or that it is an application, which nobody
    /// believes.
    ///
    /// It may take as long as the file systems of the process want: where those are its own, that may be for ever.
    ///
    /// # Errors
    ///
    /// As [`Host::identify`].
    pub fn look_inside(&self, pid: u32) -> Result<Caller, IdentityError> {
        match read(&self.of(pid, "root/.flatpak-info")) {
            Ok(text) => Err(IdentityError::Forged {
                pid,
                said: format!("{:?}", Said::parse(&text).id.unwrap_or_default()),
                known: "it does not belong to a running instance of it".to_owned(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let exe = self.exe(pid);
                let speaks =
                    if is_proxy(exe.as_deref()) { Speaks::ForOthers } else { Speaks::ForItself };
                Ok(Caller { pid, application: Application::Other, exe, speaks })
            }
            Err(source) => Err(IdentityError::Unknown { pid, source }),
        }
    }

    fn exe(&self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.of(pid, "exe")).ok()
    }

    /// Returns what the control group of a process says it is.
    fn scope(&self, pid: u32) -> io::Result<Option<Application>> {
        let text = read(&self.of(pid, "cgroup"))?;
        Ok(text.lines().find_map(|line| scope_of(line.splitn(3, ':').nth(2)?)))
    }

    fn of(&self, pid: u32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }
}

/// Says whether a process passes on what others say: whether it is the proxy of a sandbox.
#[must_use]
pub fn is_proxy_process(pid: u32) -> bool {
    is_proxy(std::fs::read_link(format!("/proc/{pid}/exe")).ok().as_deref())
}

/// What a `.flatpak-info` says.
#[derive(Debug, Default)]
struct Said {
    id: Option<String>,
}

impl Said {
    fn parse(text: &str) -> Said {
        let Ok(file) = KeyFile::parse(text.as_bytes()) else { return Said::default() };
        let value = |group, key| file.get(group, key).map(str::to_owned);
        Said { id: value("Application", "name").or_else(|| value("Runtime", "name")) }
    }
}

/// Reads the names that Flatpak, Snap and systemd give to control groups of applications.
fn scope_of(path: &str) -> Option<Application> {
    let legal = |id: &str| {
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    path.split('/').rev().find_map(|part| {
        if let Some(rest) = part.strip_prefix("app-flatpak-") {
            let (id, _) = rest.strip_suffix(".scope")?.rsplit_once('-')?;
            // systemd writes a dash in a name as four characters.
            let id = id.replace("\\x2d", "-");
            return legal(&id).then_some(Application::Flatpak { id, instance: None });
        }
        let id = part.strip_prefix("snap.")?.split('.').next()?;
        legal(id).then(|| Application::Snap { id: id.to_owned() })
    })
}

fn read(path: &Path) -> io::Result<String> {
    use rustix::fs::{Mode, OFlags, open};
    // What stands there may be a pipe, or lead anywhere.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(path, flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests are other programs")]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    const INFO: &str = "[Application]\nname=org.vim.Vim\n[Instance]\ninstance-id=77\n";

    /// A machine on which process 5 is in instance 77 with process 4.
    fn host(dir: &Path) -> Host {
        let host = Host { proc: dir.join("proc"), instances: dir.join("instances") };
        for (pid, space) in [("self", "1"), ("3", "1"), ("4", "2"), ("5", "2"), ("6", "3")] {
            let process = host.proc.join(pid);
            create_dir_all(process.join("ns")).unwrap();
            create_dir_all(process.join("root")).unwrap();
            symlink(format!("mnt:[{space}]"), process.join("ns/mnt")).unwrap();
            write(process.join("cgroup"), "1:name=systemd:/\n0::/user.slice\n").unwrap();
        }
        write(host.proc.join("5/root/.flatpak-info"), INFO).unwrap();
        create_dir_all(host.instances.join("77")).unwrap();
        write(host.instances.join("77/info"), INFO).unwrap();
        write(host.instances.join("77/bwrapinfo.json"), "{\"child-pid\": 4}").unwrap();
        host
    }

    fn name(host: &Host, pid: u32) -> Option<String> {
        host.identify(pid).ok().map(|caller| caller.application.policy_name())
    }

    #[test]
    fn an_application_is_who_its_instance_is() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        assert_eq!(name(&host, 5).as_deref(), Some("org.vim.Vim"));
        assert_eq!(name(&host, 3).as_deref(), Some("host"));
        assert_eq!(name(&host, 6).as_deref(), Some("other"));
        assert_eq!(name(&host, 7), None);
        // Whatever it says of itself.
        write(host.proc.join("5/root/.flatpak-info"), INFO.replace("Vim", "Vi")).unwrap();
        assert_eq!(name(&host, 5).as_deref(), Some("org.vim.Vim"));
        std::fs::remove_file(host.proc.join("5/root/.flatpak-info")).unwrap();
        assert_eq!(name(&host, 5).as_deref(), Some("org.vim.Vim"));
    }

    #[test]
    fn a_file_that_the_host_does_not_know_of_is_forged() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        let forged = |pid| matches!(host.identify(pid), Err(IdentityError::Forged { .. }));
        let say = |text: &str| write(host.proc.join("6/root/.flatpak-info"), text).unwrap();
        // Not in the instance that it names; another one; none; none that is a number.
        for text in [
            INFO,
            &INFO.replace("77", "78"),
            "[Application]\nname=org.vim.Vim\n",
            &INFO.replace("77", "../77"),
            "no key file",
        ] {
            say(text);
            assert!(host.recognize(6).unwrap().is_none(), "{text}");
            assert!(forged(6), "{text}");
        }
        // In the scope of another application than the instance's.
        let scope = "0::/user.slice/app-flatpak-org.kde.kate-12.scope\n";
        write(host.proc.join("5/cgroup"), scope).unwrap();
        assert!(forged(5));
        // In a scope alone: the service manager knows.
        write(host.proc.join("6/cgroup"), scope).unwrap();
        assert_eq!(name(&host, 6).as_deref(), Some("org.kde.kate"));
    }

    #[test]
    fn a_proxy_is_known_by_a_pipe_of_the_sandbox_and_is_never_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        let exe = |pid: &str, program: &str| {
            symlink(program, host.proc.join(pid).join("exe")).unwrap();
        };
        write(host.proc.join("6/root/.flatpak-info"), INFO).unwrap();
        exe("6", "/usr/bin/xdg-dbus-proxy");
        // A pipe of its own; the standard ones, which many share; then one of the instance's.
        for (pid, name, pipe) in [("4", "9", 1), ("6", "8", 2), ("6", "1", 1), ("6", "7", 1)] {
            assert_ne!(super::tests::name(&host, 6).as_deref(), Some("org.vim.Vim"), "{name}");
            create_dir_all(host.proc.join(pid).join("fd")).unwrap();
            let path = host.proc.join(pid).join("fd").join(name);
            symlink(format!("pipe:[{pipe}]"), path).unwrap();
        }
        assert_eq!(name(&host, 6).as_deref(), Some("org.vim.Vim"));
        // Another program with that pipe speaks for itself.
        std::fs::remove_file(host.proc.join("6/exe")).unwrap();
        exe("6", "/usr/bin/vim");
        assert_eq!(name(&host, 6), None);
        // A proxy that sees the files of the host speaks for somebody else all the same.
        exe("3", "/usr/bin/xdg-dbus-proxy");
        assert_eq!(name(&host, 3).as_deref(), Some("other"));
    }

    #[test]
    fn an_instance_that_has_ended_says_nothing_about_those_who_got_its_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        let instance = host.instances.join("77");
        let reference = instance.join(".ref");
        write(&reference, "").unwrap();
        // Nobody holds the lock of a sandbox that has ended.
        assert_eq!(host.recognize(5).unwrap(), None);
        let mut holder = std::process::Command::new("python3")
            .args(["-c", "import fcntl,sys;f=open(sys.argv[1],'r');fcntl.lockf(f,fcntl.LOCK_SH);print(flush=True);input()"])
            .arg(&reference)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert_eq!(name(&host, 5).as_deref(), Some("org.vim.Vim"));
        holder.kill().unwrap();
        holder.wait().unwrap();
        // Without a lock the mounts that were noted tell whether the process inside is still the same.
        std::fs::remove_file(&reference).unwrap();
        let made = |mounts: u32| {
            let text = format!("{{\"child-pid\": 4, \"mnt-namespace\": {mounts}}}");
            write(instance.join("bwrapinfo.json"), text).unwrap();
        };
        made(2);
        assert_eq!(name(&host, 5).as_deref(), Some("org.vim.Vim"));
        made(3);
        assert_eq!(host.recognize(6).unwrap(), None, "another sandbox got the number");
    }

    #[test]
    fn a_connection_is_counted_for_whoever_holds_it() {
        use std::os::unix::net::{UnixListener, UnixStream};
        let host = Host::real(Path::new("/run/user/0"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let server = listener.accept().unwrap().0;
        // Somebody else than us is the client.
        let holder =
            std::process::Command::new("cat").stdin(std::os::fd::OwnedFd::from(client)).spawn();
        let mut holder = holder.unwrap();
        let own = std::process::id();
        let counts = [own, holder.id()].map(|bus| host.connections_to(bus, holder.id()));
        drop(server);
        holder.wait().unwrap();
        if let [Ok(count), none] = counts {
            assert_eq!((count, none.unwrap()), (1, 0));
        }
    }

    #[test]
    fn control_groups_name_applications() {
        let app = |id: &str| Some(Application::Flatpak { id: id.to_owned(), instance: None });
        assert_eq!(scope_of("/a/app-flatpak-org.vim.Vim-12.scope"), app("org.vim.Vim"));
        assert_eq!(scope_of("/app-flatpak-a\\x2db.C-1.scope/x"), app("a-b.C"));
        assert_eq!(
            scope_of("/user.slice/snap.code.code-1.scope"),
            Some(Application::Snap { id: "code".into() })
        );
        assert_eq!(scope_of("/user.slice/app-gnome-1.scope"), None);
        assert_eq!(scope_of("/app-flatpak-.scope"), None);
    }

    #[test]
    fn we_are_a_program_of_the_host() {
        let host = Host::real(Path::new("/run/user/0"));
        let caller = host.identify(std::process::id()).unwrap();
        assert_eq!(caller.application, Application::Host);
        assert_eq!(caller.exe, std::env::current_exe().ok());
    }
}
