//! Identifies the application of a calling process from facts of the kernel and of the host, never from its own claims.

mod client;
mod instances;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::client::is_proxy;
use self::instances::{Belongs, Instance};
use super::process::ProcessStat;
use xdg::keyfile::KeyFile;

pub use self::client::{CallTraits, Client, TerminalFile};
pub use self::instances::Speaks;

/// The most bytes of a file of a process that are read.
const MOST_BYTES: u64 = 64 << 10;
/// The program through which sandboxes reach the bus.
const PROXY: &str = "xdg-dbus-proxy";

/// The kind of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallerKind {
    /// A program in the mount namespace of the host, as this service.
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
    /// A program in another mount namespace that is neither: a container, or a service with a private directory.
    Other,
}

impl CallerKind {
    /// Returns the name of its section in the policy: `host`, the name of the application, `snap.NAME` or `other`.
    #[must_use]
    pub fn policy_name(&self) -> String {
        match self {
            CallerKind::Host => "host".to_owned(),
            CallerKind::Flatpak { id, .. } => id.clone(),
            CallerKind::Snap { id } => format!("snap.{id}"),
            CallerKind::Other => "other".to_owned(),
        }
    }

    fn is_flatpak(&self, name: &str) -> bool {
        matches!(self, CallerKind::Flatpak { id, .. } if id == name)
    }
}

/// A process that called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its process number in the host's namespace.
    pub pid: u32,
    /// Its kind.
    pub application: CallerKind,
    /// The path of its executable in its own mount namespace, if it is readable.
    pub exe: Option<PathBuf>,
    /// Whether it is a proxy.
    pub speaks: Speaks,
}

/// Why a process is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It claims to be an application, and the host's records contradict.
    #[error("cannot believe process {pid}: it seems to be {said}, and {known}")]
    Forged {
        /// Its number.
        pid: u32,
        /// The application that its files name.
        said: String,
        /// The application in the host's records.
        known: String,
    },
    /// It has ended, or its data is not readable.
    #[error("cannot find out what process {pid} is")]
    Unknown {
        /// Its number.
        pid: u32,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// The directories with the facts of the kernel and of the host; a test has its own.
#[derive(Clone, Debug)]
pub struct ProcessDirectory {
    /// Where `/proc` is.
    pub proc: PathBuf,
    /// Where Flatpak keeps its running instances: `.flatpak` in the runtime directory.
    pub instances: PathBuf,
}

impl ProcessDirectory {
    /// Returns those of this machine, for the user of this runtime directory.
    #[must_use]
    pub fn real(runtime_dir: &Path) -> ProcessDirectory {
        ProcessDirectory { proc: "/proc".into(), instances: runtime_dir.join(".flatpak") }
    }

    /// Returns whether `pid` is in the mount namespace of this process, without a look at its files.
    ///
    /// # Errors
    ///
    /// It has ended, or its data is not readable.
    pub(crate) fn shares_our_files(&self, pid: u32) -> io::Result<bool> {
        let own = std::fs::read_link(self.proc.join("self/ns/mnt"))?;
        Ok(std::fs::read_link(self.of(pid, "ns/mnt"))? == own)
    }

    /// Returns when `pid` began, in ticks since boot.
    #[must_use]
    pub fn began(&self, pid: u32) -> Option<u64> {
        ProcessStat::within(&self.proc, pid).map(|stat| stat.began)
    }

    /// Says how many connections to the bus of process `bus` the process `pid` holds.
    ///
    /// A bus that reports only the process number of a caller may mean a process that has ended; another process with that
    /// number does not hold the connection.
    ///
    /// # Errors
    ///
    /// A process has ended or is not readable, or the kernel does not report which sockets are connected.
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

    /// Identifies the application of `pid`.
    ///
    /// It may block as long as the file systems of the process do: for ever if the process controls them.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if it has ended, [`IdentityError::Forged`] if its claim is false.
    pub fn identify(&self, pid: u32) -> Result<Caller, IdentityError> {
        match self.recognize(pid)? {
            Some(caller) => Ok(caller),
            None => self.look_inside(pid),
        }
    }

    /// Identifies the application of `pid` by facts of the kernel and of the host, without a look at its files;
    /// `None` if these do not suffice. Then [`ProcessDirectory::look_inside`] decides.
    ///
    /// An application of Flatpak is recognised by the namespaces and the pipes that the host recorded when
    /// its sandbox was created, and by its control group.
    ///
    /// # Errors
    ///
    /// As [`ProcessDirectory::identify`].
    pub fn recognize(&self, pid: u32) -> Result<Option<Caller>, IdentityError> {
        let unknown = |source| IdentityError::Unknown { pid, source };
        let exe = self.exe(pid);
        let speaks = if is_proxy(exe.as_deref()) { Speaks::ForOthers } else { Speaks::ForItself };
        let shares_ours = self.shares_our_files(pid).map_err(unknown)?;
        let caller = |application| Ok(Some(Caller { pid, application, exe, speaks }));
        // A proxy is no program of the host, whatever its mount namespace is.
        if shares_ours && speaks == Speaks::ForItself {
            return caller(CallerKind::Host);
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
                caller(CallerKind::Flatpak { id, instance: Some(number) })
            }
            (None, Some(scope)) => caller(scope),
            (None, None) if shares_ours => caller(CallerKind::Other),
            (None, None) => Ok(None),
        }
    }

    /// Reads the claim of an unknown process in its own files: none, or that it is an application, which is
    /// refused.
    ///
    /// It may block as long as the file systems of the process do: for ever if the process controls them.
    ///
    /// # Errors
    ///
    /// As [`ProcessDirectory::identify`].
    pub fn look_inside(&self, pid: u32) -> Result<Caller, IdentityError> {
        match read(&self.of(pid, "root/.flatpak-info")) {
            Ok(text) => Err(IdentityError::Forged {
                pid,
                said: format!("{:?}", FlatpakInfo::parse(&text).id.unwrap_or_default()),
                known: "it does not belong to a running instance of it".to_owned(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let exe = self.exe(pid);
                let speaks =
                    if is_proxy(exe.as_deref()) { Speaks::ForOthers } else { Speaks::ForItself };
                Ok(Caller { pid, application: CallerKind::Other, exe, speaks })
            }
            Err(source) => Err(IdentityError::Unknown { pid, source }),
        }
    }

    fn exe(&self, pid: u32) -> Option<PathBuf> {
        std::fs::read_link(self.of(pid, "exe")).ok()
    }

    /// Returns the application of the control group of a process.
    fn scope(&self, pid: u32) -> io::Result<Option<CallerKind>> {
        let text = read(&self.of(pid, "cgroup"))?;
        Ok(text.lines().find_map(|line| scope_of(line.splitn(3, ':').nth(2)?)))
    }

    fn of(&self, pid: u32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }
}

/// Returns whether a process is the proxy of a sandbox.
#[must_use]
pub(crate) fn is_proxy_process(pid: u32) -> bool {
    is_proxy(std::fs::read_link(format!("/proc/{pid}/exe")).ok().as_deref())
}

/// The contents of a `.flatpak-info`.
#[derive(Debug, Default)]
struct FlatpakInfo {
    id: Option<String>,
}

impl FlatpakInfo {
    fn parse(text: &str) -> FlatpakInfo {
        let Ok(file) = KeyFile::parse(text.as_bytes()) else { return FlatpakInfo::default() };
        let value = |group, key| file.get(group, key).map(str::to_owned);
        FlatpakInfo { id: value("Application", "name").or_else(|| value("Runtime", "name")) }
    }
}

/// Reads the names that Flatpak, Snap and systemd give to control groups of applications.
fn scope_of(path: &str) -> Option<CallerKind> {
    let legal = |id: &str| {
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    path.split('/').rev().find_map(|part| {
        if let Some(rest) = part.strip_prefix("app-flatpak-") {
            let (id, _) = rest.strip_suffix(".scope")?.rsplit_once('-')?;
            // systemd writes a dash in a name as four characters.
            let id = id.replace("\\x2d", "-");
            return legal(&id).then_some(CallerKind::Flatpak { id, instance: None });
        }
        let id = part.strip_prefix("snap.")?.split('.').next()?;
        legal(id).then(|| CallerKind::Snap { id: id.to_owned() })
    })
}

fn read(path: &Path) -> io::Result<String> {
    use rustix::fs::{Mode, OFlags, open};
    // The path may be a pipe or a symlink to anywhere.
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
    fn host(dir: &Path) -> ProcessDirectory {
        let host = ProcessDirectory { proc: dir.join("proc"), instances: dir.join("instances") };
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

    fn name(host: &ProcessDirectory, pid: u32) -> Option<String> {
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
        // Its own claim does not count.
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
        // It claims another instance, a missing one, and one that is no number.
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
        // Only the control group names the application.
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
        // Another program with that pipe calls for itself.
        std::fs::remove_file(host.proc.join("6/exe")).unwrap();
        exe("6", "/usr/bin/vim");
        assert_eq!(name(&host, 6), None);
        // A proxy in the mount namespace of the host is a proxy all the same.
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
        // No process holds the lock of a sandbox that has ended.
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
        // Without a lock the recorded mount namespace shows whether the process inside is still the same.
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
        let host = ProcessDirectory::real(Path::new("/run/user/0"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bus");
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        let server = listener.accept().unwrap().0;
        // Another process is the client.
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
        let app = |id: &str| Some(CallerKind::Flatpak { id: id.to_owned(), instance: None });
        assert_eq!(scope_of("/a/app-flatpak-org.vim.Vim-12.scope"), app("org.vim.Vim"));
        assert_eq!(scope_of("/app-flatpak-a\\x2db.C-1.scope/x"), app("a-b.C"));
        assert_eq!(
            scope_of("/user.slice/snap.code.code-1.scope"),
            Some(CallerKind::Snap { id: "code".into() })
        );
        assert_eq!(scope_of("/user.slice/app-gnome-1.scope"), None);
        assert_eq!(scope_of("/app-flatpak-.scope"), None);
    }

    #[test]
    fn we_are_a_program_of_the_host() {
        let host = ProcessDirectory::real(Path::new("/run/user/0"));
        let caller = host.identify(std::process::id()).unwrap();
        assert_eq!(caller.application, CallerKind::Host);
        assert_eq!(caller.exe, std::env::current_exe().ok());
    }
}
