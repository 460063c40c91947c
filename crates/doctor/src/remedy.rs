//! Remedies as commands that can be pasted into a shell.
//!
//! A remedy contains its programs and files; [`Shell`] formats it for this machine, or returns that it is not available.

use report::quoting::quoted;
use std::path::{Path, PathBuf};

use super::machine::Machine;
use setup::SetupPart;

/// Something that a command does. Each runs with nothing to fill in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Shows why a file system became read-only.
    ShowRemounts,
    /// Shows what takes the space of a file system.
    ShowSpace(PathBuf),
    /// Mounts a file system without `sync`.
    MountAsync(PathBuf),
    /// Has bfq schedule a disk until the next start.
    SetScheduler(String),
    /// Turns the write-back throttling of a disk on.
    SetThrottling(String),
    /// Has bfq schedule disks from the next start on.
    SchedulerRule,
    /// Has a loop device pass the page cache by.
    DirectLoop(String),
    /// Has known background units step back.
    AdoptUnits(Units),
    /// Delegates the I/O controller to the users' managers.
    DelegateIo,
    /// Switches a part of ours on for this user.
    SetUp(SetupPart),
    /// Ends a process, which something else then does better.
    EndProcess {
        /// What it is.
        name: String,
        /// The processes.
        pids: Vec<u32>,
        /// What that is good for.
        effect: &'static str,
    },
    /// Shows who changed settings.
    ShowHistory,
    /// Takes what can still be read out of a database.
    SalvageDatabase(PathBuf),
    /// Removes files that nothing reads.
    RemoveFiles(Vec<PathBuf>),
    /// Removes what another user left in the runtime directory of this one.
    RemoveForeign {
        /// What it is.
        path: PathBuf,
        /// Whether the directory that it is in is another user's, too.
        needs_root: bool,
    },
    /// Compiles system databases of settings.
    CompileDatabases,
    /// Traces what a launcher waits for.
    TraceLaunch {
        /// The launcher and its first arguments.
        launcher: Vec<String>,
        /// What it opens.
        document: PathBuf,
    },
    /// Removes thumbnails that nobody looked at for three months.
    RemoveThumbnails(PathBuf),
    /// Detaches a file system whose server or program is away.
    Detach {
        /// Where it is mounted.
        point: PathBuf,
        /// Whether it is this user's own FUSE.
        is_own_fuse: bool,
    },
    /// Shows the session bus, or some calls on it.
    WatchBus(Option<String>),
    /// Takes a file's rights from others.
    CloseToOthers(PathBuf),
    /// Shows what forgetting the last day's documents would take.
    ForgetRecent,
    /// Tells systemd and D-Bus of this session's variables.
    TellSession(Vec<String>),
    /// Makes the cache of what applications open.
    UpdateApplications {
        /// The directory of the cache.
        directory: PathBuf,
        /// Whether this user may write there.
        is_ours: bool,
    },
    /// Makes the cache of GIO's modules.
    UpdateModules {
        /// The program, which is in no directory of programs.
        program: PathBuf,
        /// The directory of the cache.
        directory: PathBuf,
    },
    /// Makes KDE's cache of applications.
    UpdateSycoca,
}

/// Whose units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// The system's.
    System,
    /// The user's.
    User,
}

/// The rule of udev that chooses bfq.
const RULE: &str = "ACTION==\"add|change\", SUBSYSTEM==\"block\", ENV{DEVTYPE}==\"disk\", KERNEL==\"sd*[!0-9]|vd*[!0-9]|mmcblk[0-9]*\", ATTR{queue/scheduler}=\"bfq\"";
const RULES: &str = "/etc/udev/rules.d";
const DELEGATION: &str = "/etc/systemd/system/user@.service.d";

/// One program with its arguments, behind the ones before it.
struct PipelineStage {
    /// What stands before it: nothing, `|` or `&&`.
    joint: &'static str,
    as_root: bool,
    words: Vec<String>,
}

/// Makes a part; the words are not quoted yet.
fn part(joint: &'static str, words: &[&str]) -> PipelineStage {
    PipelineStage {
        joint,
        as_root: false,
        words: words.iter().map(|word| (*word).to_owned()).collect(),
    }
}

/// Makes a part that only root may run.
fn root_part(joint: &'static str, words: &[&str]) -> PipelineStage {
    PipelineStage { as_root: true, ..part(joint, words) }
}

fn text(path: &Path) -> Option<&str> {
    // What a terminal does not show cannot be pasted.
    path.to_str().filter(|text| !text.chars().any(char::is_control))
}

impl Remedy {
    /// Returns what it does, in a sentence without a full stop.
    #[must_use]
    pub fn text(&self) -> String {
        let said = match self {
            Remedy::ShowRemounts => "see why the kernel or the boot made it read-only",
            Remedy::ShowSpace(_) => "see what takes the space",
            Remedy::MountAsync(_) => {
                "mount without sync until the next start; sync in /etc/fstab makes it so again"
            }
            Remedy::SetScheduler(_) => {
                "let the scheduler put a waiting program before a copy, until the next start"
            }
            Remedy::SetThrottling(_) => {
                "turn write-back throttling on again, with the kernel's own target"
            }
            Remedy::SchedulerRule => {
                "let bfq schedule disks that are not NVMe, from the next start on"
            }
            Remedy::DirectLoop(_) => "let it pass requests on as they are, until it is detached",
            Remedy::AdoptUnits(_) => {
                "let them start in the idle class, and be held while others wait; --undo takes it back"
            }
            Remedy::DelegateIo => {
                "delegate io, too, from the next login on; it acts under bfq, or with a cost model"
            }
            Remedy::SetUp(SetupPart::Settings) => {
                "let unjankd serve the settings instead, without root; programs need no change"
            }
            Remedy::SetUp(SetupPart::Relax) => {
                "have programs not wait for that, from the next login on"
            }
            Remedy::SetUp(SetupPart::Host) => {
                "let unjankd run them: it ends whole trees of commands, gives them terminals, and keeps a log of what ran"
            }
            Remedy::SetUp(SetupPart::Run) => {
                "let them start in the idle class, and be held while others wait; `unjank undo run` takes it back"
            }
            Remedy::SetUp(part) => part.summary(),
            Remedy::EndProcess { name, effect, .. } => {
                return format!("end {name}{effect}");
            }
            Remedy::ShowHistory => "see what was changed",
            Remedy::SalvageDatabase(_) => "take out what can still be read, into a new file",
            Remedy::RemoveFiles(_) => "remove them",
            Remedy::RemoveForeign { .. } => "remove it; the next reader makes a new one",
            Remedy::CompileDatabases => "compile it",
            Remedy::TraceLaunch { .. } => "see every wait with its stack, on a page",
            Remedy::RemoveThumbnails(_) => {
                "remove the thumbnails that nobody has looked at for three months; they are made again when needed"
            }
            Remedy::Detach { .. } => "detach it until whoever answers for it is back",
            Remedy::WatchBus(None) => "see who calls whom",
            Remedy::WatchBus(Some(_)) => "see who waits for it",
            Remedy::CloseToOthers(_) => "close it to others",
            Remedy::ForgetRecent => "see what was recorded since yesterday and would be forgotten",
            Remedy::TellSession(_) => "tell it of this session's, and start it again",
            Remedy::UpdateApplications { .. } | Remedy::UpdateModules { .. } => "make it again",
            Remedy::UpdateSycoca => "make it now",
        };
        said.to_owned()
    }

    /// Returns the programs that do it, none if a path in it cannot be typed.
    fn parts(&self) -> Option<Vec<PipelineStage>> {
        Some(match self {
            Remedy::ShowRemounts => vec![root_part("", &["journalctl", "-k", "-g", "remount"])],
            Remedy::ShowSpace(point) => vec![
                part("", &["du", "-xh", "--max-depth=2", text(point)?]),
                part("|", &["sort", "-h"]),
                part("|", &["tail"]),
            ],
            Remedy::MountAsync(point) => {
                vec![root_part("", &["mount", "-o", "remount,async", text(point)?])]
            }
            Remedy::SetScheduler(disk) => vec![
                part("", &["echo", "bfq"]),
                root_part("|", &["tee", &format!("/sys/block/{disk}/queue/scheduler")]),
            ],
            Remedy::SetThrottling(disk) => vec![
                part("", &["echo", "-1"]),
                root_part("|", &["tee", &format!("/sys/block/{disk}/queue/wbt_lat_usec")]),
            ],
            Remedy::SchedulerRule => vec![
                root_part("", &["mkdir", "-p", RULES]),
                part("&&", &["echo", RULE]),
                root_part("|", &["tee", &format!("{RULES}/61-unjank-scheduler.rules")]),
            ],
            Remedy::DirectLoop(name) => {
                vec![root_part("", &["losetup", "--direct-io=on", &format!("/dev/{name}")])]
            }
            Remedy::AdoptUnits(units) => {
                let words = ["unjank", "run", "--adopt-units"];
                vec![if *units == Units::System { root_part("", &words) } else { part("", &words) }]
            }
            Remedy::DelegateIo => vec![
                root_part("", &["mkdir", "-p", DELEGATION]),
                part("&&", &["printf", "[Service]\\nDelegate=pids memory cpu io\\n"]),
                root_part("|", &["tee", &format!("{DELEGATION}/60-unjank.conf")]),
                root_part("&&", &["systemctl", "daemon-reload"]),
            ],
            Remedy::SetUp(chosen) => vec![part("", &["unjank", "setup", chosen.name()])],
            Remedy::EndProcess { pids, .. } => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                let words: Vec<&str> =
                    ["kill"].into_iter().chain(pids.iter().map(|pid| &**pid)).collect();
                vec![part("", &words)]
            }
            Remedy::ShowHistory => {
                vec![part("", &["unjank", "settings", "history", "--since", "yesterday"])]
            }
            Remedy::SalvageDatabase(path) => {
                let path = text(path)?;
                let new = format!("{path}.salvaged");
                vec![part("", &["unjank", "settings", "salvage", path, "-o", &new])]
            }
            Remedy::RemoveFiles(paths) => {
                let mut words = vec!["rm", "-f"];
                for path in paths {
                    words.push(text(path)?);
                }
                vec![part("", &words)]
            }
            Remedy::RemoveForeign { path, needs_root } => {
                let words = ["rm", "-rf", text(path)?];
                vec![if *needs_root { root_part("", &words) } else { part("", &words) }]
            }
            Remedy::CompileDatabases => vec![root_part("", &["dconf", "update"])],
            Remedy::TraceLaunch { launcher, document } => {
                let mut words = vec!["unjank", "trace", "-o", "launch.html", "--"];
                words.extend(launcher.iter().map(|word| &**word));
                words.push(text(document)?);
                vec![part("", &words)]
            }
            Remedy::RemoveThumbnails(directory) => {
                let words = ["find", text(directory)?, "-type", "f", "-atime", "+90", "-delete"];
                vec![part("", &words)]
            }
            Remedy::Detach { point, is_own_fuse: true } => {
                vec![part("", &["fusermount3", "-u", "-z", text(point)?])]
            }
            Remedy::Detach { point, .. } => {
                vec![root_part("", &["umount", "--lazy", text(point)?])]
            }
            Remedy::WatchBus(None) => vec![part("", &["unjank", "bus", "live"])],
            Remedy::WatchBus(Some(filter)) => {
                vec![part("", &["unjank", "bus", "live", "--filter", filter])]
            }
            Remedy::CloseToOthers(path) => vec![part("", &["chmod", "go=", text(path)?])],
            Remedy::ForgetRecent => {
                vec![part("", &["unjank", "recent", "forget", "--since", "1d", "--dry-run"])]
            }
            Remedy::TellSession(names) => {
                let mut words = vec!["dbus-update-activation-environment", "--systemd"];
                words.extend(names.iter().map(|name| &**name));
                let restart = ["systemctl", "--user", "restart", "flatpak-session-helper"];
                vec![part("", &words), part("&&", &restart)]
            }
            Remedy::UpdateApplications { directory, is_ours } => {
                let words = ["update-desktop-database", text(directory)?];
                vec![if *is_ours { part("", &words) } else { root_part("", &words) }]
            }
            Remedy::UpdateModules { program, directory } => {
                vec![root_part("", &[text(program)?, text(directory)?])]
            }
            Remedy::UpdateSycoca => vec![part("", &["kbuildsycoca5"])],
        })
    }
}

/// How commands are typed on this machine, by this user.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    /// Where programs are looked for.
    path: Vec<PathBuf>,
    home: Option<PathBuf>,
    /// The running program, which need not be on the path.
    own: Option<PathBuf>,
    is_root: bool,
}

/// Where `sudo` looks for programs, whatever the user's path is.
const ROOT_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Words that every shell has itself.
const BUILT_IN: [&str; 3] = ["echo", "printf", "kill"];

/// The name of our program.
const OWN: &str = "unjank";

impl Shell {
    /// Returns how commands are typed by the user of this machine.
    #[must_use]
    pub fn of(machine: &Machine) -> Shell {
        Shell {
            path: machine.catalogue.places.path.clone(),
            home: machine.home.clone(),
            own: machine.program_dir.as_ref().map(|dir| dir.join(OWN)),
            is_root: machine.uid == 0,
        }
    }

    /// Returns the command that applies a remedy, as it can be pasted; none where a program is missing or root cannot be had.
    #[must_use]
    pub fn command(&self, remedy: &Remedy) -> Option<String> {
        let mut line = String::new();
        for PipelineStage { joint, as_root, words } in remedy.parts()? {
            let (program, arguments) = words.split_first()?;
            for word in [joint, if as_root && !self.is_root { self.sudo()? } else { "" }] {
                add(&mut line, word);
            }
            add(&mut line, &self.program(program, as_root)?);
            for argument in arguments {
                add(&mut line, &self.typed(argument));
            }
        }
        Some(line)
    }

    fn sudo(&self) -> Option<&'static str> {
        has(&self.path, "sudo").then_some("sudo")
    }

    /// Returns how a program is called; none if it is not there.
    fn program(&self, program: &str, as_root: bool) -> Option<String> {
        if program.starts_with('/') {
            return is_program(Path::new(program)).then(|| self.typed(program));
        }
        let for_root: Vec<PathBuf> = ROOT_PATH.iter().map(PathBuf::from).collect();
        let path = if as_root && !self.is_root { &for_root } else { &self.path };
        if (BUILT_IN.contains(&program) && !as_root) || has(path, program) {
            return Some(program.to_owned());
        }
        // What root runs must be where only root may write, so our own path does not do.
        let own = self.own.as_deref().filter(|own| program == OWN && !as_root && is_program(own));
        own.and_then(text).map(|own| self.typed(own))
    }

    /// Returns a word as it is typed, a path below the home with a tilde.
    fn typed(&self, word: &str) -> String {
        let home = self.home.as_deref().and_then(Path::to_str).filter(|home| home.len() > 1);
        let below = home.and_then(|home| word.strip_prefix(home)?.strip_prefix('/'));
        match below {
            // A quoted tilde is no home.
            Some(rest) if quoted(rest) == rest => format!("~/{rest}"),
            _ => quoted(word),
        }
    }
}

fn add(line: &mut String, word: &str) {
    if !word.is_empty() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
}

fn has(path: &[PathBuf], program: &str) -> bool {
    path.iter().any(|dir| is_program(&dir.join(program)))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let found = std::fs::metadata(path);
    found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these programs, and nothing else.
    fn shell(programs: &[&str], is_root: bool) -> (tempfile::TempDir, Shell) {
        use std::os::unix::fs::OpenOptionsExt;
        let dir = tempfile::tempdir().unwrap();
        for program in programs {
            let mut file = std::fs::OpenOptions::new();
            file.write(true).create_new(true).mode(0o755).open(dir.path().join(program)).unwrap();
        }
        let path = vec![dir.path().to_owned()];
        let home = Some(PathBuf::from("/home/ana"));
        (dir, Shell { path, home, own: None, is_root })
    }

    #[test]
    fn a_command_is_typed_as_its_user_has_to() {
        let rule = Remedy::SetScheduler("sda".to_owned());
        let (_dir, user) = shell(&["tee", "sudo"], false);
        assert_eq!(
            user.command(&rule).unwrap(),
            "echo bfq | sudo tee /sys/block/sda/queue/scheduler"
        );
        let (_dir, root) = shell(&["tee"], true);
        assert_eq!(root.command(&rule).unwrap(), "echo bfq | tee /sys/block/sda/queue/scheduler");
        let (_dir, nobody) = shell(&["tee"], false);
        assert_eq!(nobody.command(&rule), None, "there is no way to become root");
    }

    #[test]
    fn a_program_that_is_not_there_is_not_named() {
        let (dir, mut shell) = shell(&["chmod"], false);
        assert_eq!(shell.command(&Remedy::UpdateSycoca), None);
        assert_eq!(shell.command(&Remedy::ShowHistory), None);
        std::fs::copy("/bin/true", dir.path().join("elsewhere")).unwrap();
        shell.own = Some(dir.path().join("elsewhere"));
        let typed = shell.command(&Remedy::ShowHistory).unwrap();
        assert!(
            typed.starts_with(&format!("{}/elsewhere settings", dir.path().display())),
            "{typed}"
        );
        assert_eq!(
            shell.command(&Remedy::AdoptUnits(Units::System)),
            None,
            "root runs root's programs"
        );
    }

    #[test]
    fn paths_survive_the_shell() {
        let (_dir, shell) = shell(&["chmod"], false);
        let close = |path: &str| shell.command(&Remedy::CloseToOthers(path.into()));
        assert_eq!(close("/home/ana/a").unwrap(), "chmod go= ~/a");
        assert_eq!(close("/home/ana/a b").unwrap(), "chmod go= '/home/ana/a b'");
        assert_eq!(
            close("/home/ana/it's;rm $HOME").unwrap(),
            r"chmod go= '/home/ana/it'\''s;rm $HOME'"
        );
        assert_eq!(close("/home/anabel/a").unwrap(), "chmod go= /home/anabel/a");
        assert_eq!(close("/home/ana/a\nb"), None, "no line break is pasted");
        assert_eq!(close("/home/ana/a\u{1b}[2Jb"), None);
    }
}
