//! Who calls: the application behind a process, from what the kernel and the host know of it and never from what it says.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::keyfile::KeyFile;

/// The longest file of a process that is looked at.
const MOST_BYTES: u64 = 64 << 10;

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
}

/// Why a process is nobody whom we would serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// It says that it is an application, and the host knows better.
    #[error("cannot believe process {pid}: it says that it is {said}, and {known}")]
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

    /// Finds out what `pid` belongs to.
    ///
    /// It may take as long as the file systems of the process want: where those are its own, that may be for ever.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if it has ended, [`IdentityError::Forged`] if it says what is not so.
    pub fn identify(&self, pid: u32) -> Result<Caller, IdentityError> {
        let unknown = |source| IdentityError::Unknown { pid, source };
        let exe = std::fs::read_link(self.of(pid, "exe")).ok();
        let caller = |application| Caller { pid, application, exe };
        if self.shares_our_files(pid).map_err(unknown)? {
            return Ok(caller(Application::Host));
        }
        let scope = self.scope(pid).map_err(unknown)?;
        let said = match read(&self.of(pid, "root/.flatpak-info")) {
            Ok(text) => Some(Said::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unknown(error)),
        };
        let application = match (said, scope) {
            (None, None) => Application::Other,
            (None, Some(scope)) => scope,
            (Some(said), scope) => self.believe(pid, said, scope)?,
        };
        Ok(caller(application))
    }

    /// Holds what a sandbox says of itself against the host's records of running sandboxes.
    fn believe(
        &self,
        pid: u32,
        said: Said,
        scope: Option<Application>,
    ) -> Result<Application, IdentityError> {
        let id = said.id.clone().unwrap_or_default();
        let forged = |known: &str| IdentityError::Forged {
            pid,
            said: format!("{id:?}"),
            known: known.to_owned(),
        };
        if id.is_empty() {
            return Err(forged("that names no application"));
        }
        match &scope {
            Some(Application::Flatpak { id: known, .. }) if *known != id => {
                return Err(forged(&format!("it runs in the scope of {known:?}")));
            }
            Some(Application::Snap { id: known }) => {
                return Err(forged(&format!("it runs in the snap {known:?}")));
            }
            _ => {}
        }
        let instance = said.instance.filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
        let Some(instance) = instance.filter(|number| !number.is_empty()) else {
            return Err(forged("it names no running instance"));
        };
        let dir = self.instances.join(&instance);
        let record = read(&dir.join("info")).map_err(|_| forged("no such instance runs"))?;
        if Said::parse(&record).id.as_deref() != Some(id.as_str()) {
            return Err(forged(&format!("instance {instance} is another application")));
        }
        // Numbers that the host wrote down when the sandbox was made: a process inside, and the one around it.
        let inside = read(&dir.join("bwrapinfo.json")).ok().and_then(|text| child_pid(&text));
        let around = read(&dir.join("pid")).ok().and_then(|text| text.trim().parse().ok());
        let files = |pid: u32| std::fs::read_link(self.of(pid, "ns/mnt")).ok();
        // A sandbox inside of a sandbox has an instance of its own.
        let is_inside = inside.and_then(files).is_some_and(|theirs| files(pid) == Some(theirs));
        // What a sandbox says on the bus comes from its proxy, which has files of its own, and a pipe by which it learns
        // of the end of the sandbox.
        let is_proxy = || {
            let pipes = self.pipes(pid);
            let theirs = [inside, around].into_iter().flatten().flat_map(|pid| self.pipes(pid));
            theirs.into_iter().any(|pipe| pipes.contains(&pipe))
        };
        if !is_inside && !is_proxy() {
            return Err(forged(&format!("it does not belong to instance {instance}")));
        }
        Ok(Application::Flatpak { id, instance: Some(instance) })
    }

    /// Returns what the control group of a process says it is.
    fn scope(&self, pid: u32) -> io::Result<Option<Application>> {
        let text = read(&self.of(pid, "cgroup"))?;
        Ok(text.lines().find_map(|line| scope_of(line.splitn(3, ':').nth(2)?)))
    }

    /// Returns the pipes that a process has, as the kernel names them; not those that whoever started it may have shared
    /// out among many.
    fn pipes(&self, pid: u32) -> Vec<PathBuf> {
        let open = std::fs::read_dir(self.of(pid, "fd")).into_iter().flatten();
        let named = open.filter_map(|entry| {
            let entry = entry.ok()?;
            let number: u32 = entry.file_name().to_str()?.parse().ok()?;
            (number > 2).then(|| std::fs::read_link(entry.path()).ok()).flatten()
        });
        named.filter(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:[")).collect()
    }

    fn of(&self, pid: u32, name: &str) -> PathBuf {
        self.proc.join(pid.to_string()).join(name)
    }
}

/// What a `.flatpak-info` says.
#[derive(Debug, Default)]
struct Said {
    id: Option<String>,
    instance: Option<String>,
}

impl Said {
    fn parse(text: &str) -> Said {
        let Ok(file) = KeyFile::parse(text.as_bytes()) else { return Said::default() };
        let value = |group, key| file.get(group, key).map(str::to_owned);
        Said {
            id: value("Application", "name").or_else(|| value("Runtime", "name")),
            instance: value("Instance", "instance-id"),
        }
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

/// Returns `child-pid` of what bubblewrap wrote down.
fn child_pid(text: &str) -> Option<u32> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    value.get("child-pid")?.as_u64()?.try_into().ok()
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
    }

    #[test]
    fn a_file_that_the_host_does_not_know_of_is_forged() {
        let dir = tempfile::tempdir().unwrap();
        let host = host(dir.path());
        let forged = |pid| matches!(host.identify(pid), Err(IdentityError::Forged { .. }));
        let say = |text: &str| write(host.proc.join("6/root/.flatpak-info"), text).unwrap();
        // Not in the instance that it names; another one; none; none that is a number.
        say(INFO);
        assert!(forged(6));
        say(&INFO.replace("77", "78"));
        assert!(forged(6));
        say("[Application]\nname=org.vim.Vim\n");
        assert!(forged(6));
        say(&INFO.replace("77", "../77"));
        assert!(forged(6));
        say("no key file");
        assert!(forged(6));
        // Beside the instance, with a pipe of its own, and then with one of the instance's.
        say(INFO);
        for (pid, name, pipe) in [("4", "9", 1), ("6", "8", 2), ("6", "1", 1), ("6", "7", 1)] {
            assert!(forged(6), "{name}");
            create_dir_all(host.proc.join(pid).join("fd")).unwrap();
            let path = host.proc.join(pid).join("fd").join(name);
            symlink(format!("pipe:[{pipe}]"), path).unwrap();
        }
        assert!(!forged(6));
        // In the instance, with another name.
        write(host.proc.join("5/root/.flatpak-info"), INFO.replace("Vim", "Vi")).unwrap();
        assert!(forged(5));
        // In the scope of another.
        write(host.proc.join("5/root/.flatpak-info"), INFO).unwrap();
        let scope = "0::/user.slice/app-flatpak-org.kde.kate-12.scope\n";
        write(host.proc.join("5/cgroup"), scope).unwrap();
        assert!(forged(5));
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
