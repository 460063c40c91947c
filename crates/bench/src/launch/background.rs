//! What works in the background: a job that is done again and again, with what undoes it between.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ground::{Ground, said};
use super::{LaunchError, step};
use fastrand::Rng;

/// Something that works in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackgroundLoad {
    /// Installs an application by flatpak, from a repository of our own, and uninstalls it.
    Flatpak,
    /// Unpacks an archive, and syncs.
    Tar,
    /// Copies a tree, and syncs.
    Copy,
    /// Writes small files, each made durable by itself.
    Fsync,
    /// A command, again and again.
    Command(String),
}

/// Names of those that are built in.
pub const NAMES: [&str; 4] = ["flatpak", "tar", "cp", "fsync"];

impl From<&str> for BackgroundLoad {
    fn from(text: &str) -> BackgroundLoad {
        match text {
            "flatpak" => BackgroundLoad::Flatpak,
            "tar" => BackgroundLoad::Tar,
            "cp" => BackgroundLoad::Copy,
            "fsync" => BackgroundLoad::Fsync,
            command => BackgroundLoad::Command(command.to_owned()),
        }
    }
}

/// How the repository of flatpak is made: a runtime with nothing in it, and the application.
const FLATPAK: &str = r#"
mkdir -p rt/usr rt/files app/export none system
printf '[Runtime]\nname=org.unjank.Platform\nruntime=org.unjank.Platform/x86_64/1\nsdk=org.unjank.Platform/x86_64/1\n' > rt/metadata
printf '[Application]\nname=org.unjank.App\nruntime=org.unjank.Platform/x86_64/1\nsdk=org.unjank.Platform/x86_64/1\ncommand=app\n' > app/metadata
for part in "-r repo rt 1" "repo app stable"; do
  flatpak build-export --disable-sandbox --arch=x86_64 --update-appstream $part || exit
done
flatpak build-update-repo repo &&
flatpak --user remote-add --no-gpg-verify bench "file://$MEMORY/repo" &&
flatpak --user install -y --noninteractive --arch=x86_64 bench org.unjank.Platform//1
"#;

impl BackgroundLoad {
    /// Returns its name in records.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            BackgroundLoad::Flatpak => "flatpak",
            BackgroundLoad::Tar => "tar",
            BackgroundLoad::Copy => "cp",
            BackgroundLoad::Fsync => "fsync",
            BackgroundLoad::Command(command) => command,
        }
    }

    /// Makes what it needs on `ground`, with files of `size` bytes together.
    pub(super) fn prepare(&self, ground: &Ground, size: usize) -> Result<Prepared, LaunchError> {
        let work = ground.path().join("work");
        fs::create_dir_all(&work).map_err(step("make a directory"))?;
        let tree = ground.memory().join("app/files");
        let made = match self {
            BackgroundLoad::Fsync | BackgroundLoad::Command(_) => Ok(()),
            _ if tree.is_dir() => Ok(()),
            _ => fill(&tree, size),
        };
        made.map_err(step("make files to install"))?;
        let [job, undo]: [&str; 2] = match self {
            BackgroundLoad::Flatpak => [
                "flatpak --user install -y --noninteractive bench org.unjank.App",
                // A job that is ended midway may leave the directory of an application that is not installed.
                "! flatpak --user info org.unjank.App >/dev/null 2>&1 || flatpak --user uninstall -y --noninteractive org.unjank.App",
            ],
            BackgroundLoad::Tar => {
                ["mkdir tree && tar xf \"$MEMORY/app.tar\" -C tree && sync -f tree", "rm -rf tree"]
            }
            BackgroundLoad::Copy => {
                ["cp -r \"$MEMORY/app/files\" copy && sync -f copy", "rm -rf copy"]
            }
            BackgroundLoad::Fsync => [
                "mkdir -p objects && for n in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do dd if=/dev/zero of=objects/$n bs=64k count=1 conv=fdatasync status=none || exit; done",
                "rm -rf objects",
            ],
            BackgroundLoad::Command(command) => [command, ":"],
        };
        let prepared = Prepared {
            name: self.name().to_owned(),
            job: job.to_owned(),
            undo: undo.to_owned(),
            disk: ground.path(),
            memory: ground.memory().to_owned(),
        };
        match self {
            BackgroundLoad::Flatpak if !ground.memory().join("repo").is_dir() => {
                said(prepared.sh(FLATPAK).current_dir(ground.memory()))?;
            }
            BackgroundLoad::Tar => {
                said(&mut prepared.sh("tar cf \"$MEMORY/app.tar\" -C \"$MEMORY/app/files\" ."))?;
            }
            _ => (),
        }
        Ok(prepared)
    }
}

/// A background that can be started.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) name: String,
    job: String,
    undo: String,
    disk: PathBuf,
    memory: PathBuf,
}

impl Prepared {
    /// Returns what a shell does to work without end. The phase that it is in stands in a file.
    pub(super) fn endless(&self) -> String {
        let Prepared { job, undo, .. } = self;
        format!(
            "while :; do echo job > \"$UNJANK_PHASE\"; ( {job} ) || exit; echo undo > \"$UNJANK_PHASE\"; ( {undo} ) || exit; done"
        )
    }

    /// Returns what a shell does for one job.
    pub(super) fn once(&self) -> &str {
        &self.job
    }

    /// Undoes a job, whole or begun.
    pub(super) fn undo(&self) -> Result<(), LaunchError> {
        said(&mut self.sh(&self.undo)).map(drop)
    }

    /// Returns what the background is at.
    pub(super) fn phase(&self) -> String {
        fs::read_to_string(self.memory.join("phase")).unwrap_or_default().trim().to_owned()
    }

    /// Returns the last line that the background wrote.
    pub(super) fn last_words(&self) -> String {
        let text = fs::read_to_string(self.memory.join("log")).unwrap_or_default();
        text.lines().last().unwrap_or("nothing").to_owned()
    }

    /// Returns a shell that runs `script` on the disk, under the command `before`.
    pub(super) fn shell(&self, before: &[String], script: &str) -> Command {
        let words: Vec<&str> =
            before.iter().map(String::as_str).chain(["sh", "-c", script]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.set(&mut command);
        let log = OpenOptions::new().create(true).append(true).open(self.memory.join("log"));
        let null = || Stdio::null();
        let (one, two) = match log.and_then(|log| Ok((log.try_clone()?, log))) {
            Ok((one, two)) => (Stdio::from(one), Stdio::from(two)),
            Err(_) => (null(), null()),
        };
        command.stdin(Stdio::null()).stdout(one).stderr(two);
        command
    }

    fn sh(&self, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        self.set(&mut command);
        command.stdin(Stdio::null());
        command
    }

    fn set(&self, command: &mut Command) {
        let home = self.disk.join("home");
        // A home that cannot be made is missed by who needs one.
        let _ = fs::create_dir_all(&home);
        command
            .current_dir(self.disk.join("work"))
            .env("DISK", &self.disk)
            .env("MEMORY", &self.memory)
            .env("UNJANK_PHASE", self.memory.join("phase"))
            .env("HOME", home)
            .env("FLATPAK_USER_DIR", self.disk.join("flatpak"))
            .env("FLATPAK_SYSTEM_DIR", self.memory.join("system"))
            .env("FLATPAK_TRIGGERSDIR", self.memory.join("none"));
        for name in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"] {
            command.env_remove(name);
        }
    }
}

/// Fills a directory with files like an application's, of `size` bytes together: many small ones, few big ones, half of each does not compress. The same in every run.
fn fill(directory: &Path, size: usize) -> std::io::Result<()> {
    let mut random = Rng::with_seed(7);
    let mut left = size;
    let mut number = 0;
    while left > 0 {
        let (least, doublings) = match random.usize(..100) {
            0..85 => (1 << 10, 5),
            85..98 => (32 << 10, 4),
            _ => (512 << 10, 4),
        };
        let length = (least << random.usize(..doublings)) + random.usize(..least);
        let length = length.min(left);
        left -= length;
        let mut bytes = Vec::with_capacity(length + 64);
        while bytes.len() < length / 2 {
            bytes.extend_from_slice(&random.u64(..).to_le_bytes());
        }
        while bytes.len() < length {
            bytes.extend_from_slice(b"text as programs have it, again and again;\n");
        }
        bytes.truncate(length);
        let folder = directory.join(format!("share/{}", number % 97));
        fs::create_dir_all(&folder)?;
        let path = folder.join(number.to_string());
        OpenOptions::new().write(true).create_new(true).open(path)?.write_all(&bytes)?;
        number += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_in_is_a_command() {
        for name in NAMES {
            assert!(!matches!(BackgroundLoad::from(name), BackgroundLoad::Command(_)));
            assert_eq!(BackgroundLoad::from(name).name(), name);
        }
        assert_eq!(BackgroundLoad::from("restic backup /").name(), "restic backup /");
    }

    #[test]
    fn files_are_the_same_in_every_run() {
        let one = tempfile::tempdir().unwrap();
        let two = tempfile::tempdir().unwrap();
        let total = |directory: &Path| {
            fill(directory, 3_000_000).unwrap();
            let folders = fs::read_dir(directory.join("share")).unwrap();
            let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
            let mut files: Vec<(std::ffi::OsString, Vec<u8>)> = files
                .map(|file| file.unwrap())
                .map(|file| (file.file_name(), fs::read(file.path()).unwrap()))
                .collect();
            files.sort();
            files
        };
        let files = total(one.path());
        assert_eq!(files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 3_000_000);
        assert!(files.len() > 10 && files == total(two.path()));
    }
}
