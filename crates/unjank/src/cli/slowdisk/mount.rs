//! `unjank slowdisk mount`: the server of a disk, which goes on when the command has ended, and its guard.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use slowdisk::DiskProfile;
use slowdisk::mount::MountRequest;
use slowdisk::service::{self, DiskStatus, ModelReply};
use sys::message::{receive, send};
use sys::supervise::{self, ForkSide};

use super::{FOLDER, KindOfDisk, QueueOptions};
use crate::cli::screen;
use crate::cli::screen::sayln;
use crate::cli::{bus, interrupt};
use crate::error::{Error, FailureCategory, Verdict};

/// Mount a disk over an empty directory
///
/// The disk stays until `unjank slowdisk umount DIR`, umount(8), or the end of its server.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank slowdisk mount --model emmc --size 2G /mnt/slow")]
pub(super) struct Mount {
    #[command(flatten)]
    kind: KindOfDisk,
    /// The size; memory is used only for written blocks.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = bus::size)]
    size: u64,
    #[command(flatten)]
    queue: QueueOptions,
    /// Serve it in this process, until Ctrl-C.
    #[arg(long)]
    foreground: bool,
    /// An empty directory.
    #[arg(value_name = "DIR")]
    point: PathBuf,
}

/// Unmount a disk when the server at stdin was killed
#[derive(Debug, Args)]
pub(super) struct Guard {
    point: PathBuf,
    device: String,
}

/// Less does not hold a file system.
const LEAST: u64 = 16 << 20;

impl Mount {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let Mount { kind, size, queue, foreground, point } = self;
        let profile = kind.profile()?.or_else(|| DiskProfile::named("emmc"));
        let profile =
            profile.ok_or_else(|| Error::new(FailureCategory::Internal, "find the model emmc"))?;
        let what = || format!("mount a slow disk at {}", point.display());
        if !rustix::process::geteuid().is_root() {
            return Err(Error::new(FailureCategory::Config, what())
                .because("it needs root, for a loop device and a mount")
                .hint("run this command as root, for example with sudo"));
        }
        if size < LEAST {
            return Err(Error::new(FailureCategory::User, what())
                .because("the minimum is 16 MiB")
                .hint("give --size in bytes, or with K, M or G"));
        }
        let empty = fs::read_dir(&point).map(|mut entries| entries.next().is_none());
        match empty {
            Ok(true) => (),
            Ok(false) => {
                let shown = point.display();
                return Err(match super::one(&point)? {
                    Some(_) => Error::new(FailureCategory::User, what())
                        .because("a slow disk is already mounted there")
                        .hint(format!("change it with unjank slowdisk change {shown}, or remove it with unjank slowdisk umount {shown}")),
                    None => Error::new(FailureCategory::User, what()).because("the directory is not empty"),
                });
            }
            Err(error) => return Err(Error::new(FailureCategory::User, what()).because(error)),
        }
        let failed = |error: io::Error| Error::new(FailureCategory::Config, what()).because(error);
        let point = point.canonicalize().map_err(failed)?;
        let wanted = MountRequest { profile, size, queue: queue.queue(), point };
        if foreground {
            let mut told = Ok(());
            let ended = serve(&wanted, |status| {
                told = say(status);
                told.is_ok()
            });
            ended.map_err(|why| Error::new(FailureCategory::Config, what()).because(why))?;
            return told.map(|()| Verdict::Yes);
        }
        let (ours, theirs) = sys::socket::pair().map_err(failed)?;
        match supervise::fork().map_err(failed)? {
            ForkSide::Child => in_background(&wanted, &theirs),
            ForkSide::Parent(_) => drop(theirs),
        }
        // An error says that it is gone, too.
        let _ = sys::socket::wait_readable(&ours, None);
        match receive(&ours) {
            Ok(Some(ModelReply::Status(status))) => {
                say(&status)?;
                Ok(Verdict::Yes)
            }
            Ok(Some(ModelReply::Refused(why))) => {
                Err(Error::new(FailureCategory::Config, what()).because(why))
            }
            Ok(None) | Err(_) => Err(Error::new(FailureCategory::Internal, what())
                .because("its server ended without an error message")),
        }
    }
}

fn say(status: &DiskStatus) -> Result<(), Error> {
    let mut out = screen::stdout();
    let (point, queue) = (status.point.display(), &status.queue);
    let wbt = queue.wbt_lat_usec.map_or("no".to_owned(), |usec| format!("{usec} µs"));
    sayln!(
        out,
        "{point}: {} on {}, scheduler {}, {wbt} write-back throttling, served by process {}",
        status.model,
        status.device,
        queue.scheduler,
        status.process
    )?;
    Ok(out.flush()?)
}

/// Serves in the second process after fork, and tells the first one whether it stands.
fn in_background(wanted: &MountRequest, theirs: &OwnedFd) -> ! {
    if supervise::detach(&[theirs.as_fd()]).is_err() || std::env::set_current_dir("/").is_err() {
        supervise::exit_now(1);
    }
    let ended = serve(wanted, |status| send(theirs, &ModelReply::Status(status.clone())).is_ok());
    if let Err(why) = ended {
        // Nobody waits for it any more.
        let _ = send(theirs, &ModelReply::Refused(why));
        supervise::exit_now(1);
    }
    supervise::exit_now(0)
}

/// Makes the disk and serves it until its end. `ready` hears when it can be used, and says whether anybody still wants it.
fn serve(wanted: &MountRequest, ready: impl FnOnce(&DiskStatus) -> bool) -> Result<(), String> {
    let stop = interrupt::flag();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let start_guard = |name: &str| guard(&program, &wanted.point, name);
    wanted.serve(Path::new(FOLDER), &stop, &start_guard, ready)
}

/// Starts a guard and returns our end of its socket.
fn guard(program: &Path, point: &Path, name: &str) -> io::Result<OwnedFd> {
    let (ours, theirs) = sys::socket::pair()?;
    let mut command = Command::new(program);
    command.args(super::guard_words(point, name)).current_dir("/");
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn()?;
    Ok(ours)
}

impl Guard {
    pub(super) fn run(self) {
        // Whoever ends the server's session or group does not end the one who cleans up behind it.
        let _ = rustix::process::setsid();
        let stdin = io::stdin();
        let Ok(channel) = stdin.as_fd().try_clone_to_owned() else { return };
        let control_socket = service::control_socket(Path::new(FOLDER), &self.device);
        service::guard(&channel, &self.point, &self.device, &control_socket);
    }
}
