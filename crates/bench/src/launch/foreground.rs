//! What is launched: a program all of whose files lie on the slow disk.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::ground::{Ground, said};
use super::{LaunchError, step};
use fastrand::Rng;

/// A program to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Foreground {
    /// LibreOffice, which ends as soon as it has started; the path of its `soffice`.
    LibreOffice(PathBuf),
    /// Python: imports its whole library, and reads files as large programs do; its path.
    Python(PathBuf),
    /// A command.
    Command(String),
}

/// Files that the start of Python reads besides: with its own and its library's about 40 MB, as much as LibreOffice.
const FILES: usize = 48;
const FILE_SIZE: usize = 512 << 10;

/// What Python does: imports what it comes with, but what draws, tests or opens a browser, and reads the files.
const START: &str = r#"
import pkgutil, sys, warnings
warnings.simplefilter("ignore")
left_out = {"antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter", "test", "lib2to3",
            "pip", "ensurepip", "venv", "site", "sitecustomize", "usercustomize", "__main__", "__hello__", "__phello__"}
for module in pkgutil.iter_modules(sys.path):
    if module.name not in left_out and not module.name.startswith("_sysconfigdata"):
        try:
            __import__(module.name)
        except Exception:
            pass
total = 0
for number in range(int(sys.argv[2])):
    with open(f"{sys.argv[1]}/{number}", "rb") as file:
        total += len(file.read())
print(total)
"#;

impl Foreground {
    /// Returns its name in records.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Foreground::LibreOffice(_) => "libreoffice",
            Foreground::Python(_) => "python",
            Foreground::Command(command) => command,
        }
    }

    /// Brings its files to `ground`, with `more` that it needs.
    pub(super) fn prepare(
        &self,
        ground: &mut Ground,
        more: &[PathBuf],
    ) -> Result<Launch, LaunchError> {
        for path in more {
            ground.bring(path, &[])?;
        }
        let home = ground.path().join("home");
        fs::create_dir_all(&home).map_err(step("make a directory"))?;
        let command = match self {
            Foreground::LibreOffice(program) => {
                let program = program.canonicalize().map_err(step("find LibreOffice"))?;
                // …/libreoffice/program/soffice: it starts from its own place only.
                let tree = program.parent().and_then(Path::parent).unwrap_or(&program).to_owned();
                ground.bring(&tree, &[])?;
                let profile = format!("-env:UserInstallation=file://{}/office", home.display());
                let options = ["--headless", "--norestore", "--terminate_after_init"];
                let program = program.display().to_string();
                std::iter::once(program)
                    .chain(options.map(str::to_owned))
                    .chain([profile])
                    .collect()
            }
            Foreground::Python(program) => {
                let asked = said(Command::new(program).args([
                    "-I",
                    "-c",
                    "import os, sys, sysconfig; print(os.path.realpath(sys.executable)); print(sysconfig.get_path('stdlib')); print(*map(sysconfig.get_config_var, ('LIBDIR', 'INSTSONAME')), sep='/')",
                ]))?;
                let mut lines = asked.lines();
                let (Some(binary), Some(library)) = (lines.next(), lines.next()) else {
                    let program = program.display().to_string();
                    return Err(LaunchError::Program { program, said: "no paths".to_owned() });
                };
                ground.bring(Path::new(binary), &[])?;
                let left_out = ["site-packages", "dist-packages", "test", "idlelib", "turtledemo"];
                ground.bring(Path::new(library), &left_out)?;
                // Not every Python has one.
                if let Some(shared) = lines.next().filter(|path| Path::new(path).is_file()) {
                    ground.bring(Path::new(shared), &[])?;
                }
                let files = ground.path().join("files");
                write(&files).map_err(step("make files to read"))?;
                let start = ground.path().join("start.py");
                let written =
                    OpenOptions::new().write(true).create(true).truncate(true).open(&start);
                let written = written.and_then(|mut file| file.write_all(START.as_bytes()));
                written.map_err(step("write the program to launch"))?;
                let text = |path: &Path| path.display().to_string();
                [
                    binary.to_owned(),
                    "-I".into(),
                    "-S".into(),
                    text(&start),
                    text(&files),
                    FILES.to_string(),
                ]
                .into()
            }
            Foreground::Command(command) => {
                ["sh", "-c", &format!("exec {command}")].map(str::to_owned).into()
            }
        };
        Ok(Launch { command, directory: ground.path(), home })
    }
}

fn write(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut random = Rng::with_seed(11);
    for number in 0..FILES {
        let words = (0..FILE_SIZE / 8).flat_map(|_| random.u64(..).to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        let path = directory.join(number.to_string());
        OpenOptions::new().write(true).create(true).truncate(true).open(path)?.write_all(&bytes)?;
    }
    Ok(())
}

/// A program that can be launched.
#[derive(Debug)]
pub(super) struct Launch {
    command: Vec<String>,
    directory: PathBuf,
    home: PathBuf,
}

impl Launch {
    /// Returns the command, ready to be spawned.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).current_dir(&self.directory).env("HOME", &self.home);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}
