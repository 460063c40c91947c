//! `unjank slowdisk`: a disk as slow as a real one of its kind, for other programs to be tried on.

mod mount;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use report::figure::Quantity;
use report::table::{Align, TextTable};
use serde::Serialize;
use slowdisk::service::{self, DiskStatus, ModelReply, ModelRequest};
use slowdisk::{DiskProfile, Queue, Traffic};

use super::catalogue;
use crate::cli::{document, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// Where the servers of all disks can be reached: they are root's, whoever started them.
const FOLDER: &str = "/run/unjank/slowdisk";
/// Longer profiles are none.
const LONGEST_PROFILE: u64 = 12 * 1024;

/// Mount a disk that is as slow as an eMMC, a hard disk, an SD card or an SSD.
///
/// The disk is an ext4 file system in memory, whose requests take as long as on such a disk. It needs root, and disappears when its server ends.
#[derive(Debug, Args)]
#[command(
    before_help = "Example: unjank slowdisk mount --model emmc /mnt/slow",
    after_help = "Exits with 0, 1 if no slow disk is mounted there, 2 on an error."
)]
pub(crate) struct Slowdisk {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mount(mount::Mount),
    /// Show the mounted disks and their traffic
    Status {
        /// Show only the disk that is mounted here.
        #[arg(value_name = "DIR")]
        point: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Print a line every second, until Ctrl-C or the end of the disk.
        #[arg(long, requires = "point", conflicts_with = "json")]
        follow: bool,
    },
    /// Print the profile of a model, or of the disk mounted at DIR, as a file to edit
    Profile {
        /// emmc, hdd, sd, ssd, or a directory.
        #[arg(value_name = "MODEL|DIR")]
        which: String,
    },
    /// Change the model of a mounted disk while programs use it
    Change {
        /// Where it is mounted.
        #[arg(value_name = "DIR")]
        point: PathBuf,
        #[command(flatten)]
        kind: KindOfDisk,
        /// Whether requests are delayed as on the model.
        #[arg(long, value_enum, value_name = "WHETHER")]
        delays: Option<Delays>,
        #[command(flatten)]
        queue: QueueOptions,
    },
    /// Unmount a disk
    Umount {
        /// Where it is mounted.
        #[arg(value_name = "DIR")]
        point: PathBuf,
    },
    #[command(hide = true)]
    Guard(mount::Guard),
}

/// Which disk it is to be.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct KindOfDisk {
    /// The model: emmc, hdd, sd, ssd.
    #[arg(long, value_name = "MODEL", value_parser = model)]
    model: Option<DiskProfile>,
    /// The profile in this file, made with `unjank slowdisk profile`; - is stdin.
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

/// How its queue is to be set.
#[derive(Debug, Args)]
struct QueueOptions {
    /// The I/O scheduler: none, mq-deadline, bfq.
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// The target of write-back throttling in microseconds, 0 for none; by default the kernel's choice.
    #[arg(long, value_name = "MICROSECONDS", requires = "scheduler")]
    wbt: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Delays {
    /// Requests are delayed.
    On,
    /// Requests are answered at once.
    Off,
}

fn model(name: &str) -> Result<DiskProfile, String> {
    let names = || DiskProfile::ALL.map(|profile| profile.name).join(", ");
    DiskProfile::named(name).ok_or_else(|| format!("there are {}", names()))
}

impl KindOfDisk {
    /// Reads the profile that was asked for.
    fn profile(&self) -> Result<Option<DiskProfile>, Error> {
        let Some(path) = &self.profile else { return Ok(self.model) };
        let failed =
            || Error::new(FailureCategory::User, format!("read the profile {}", path.display()));
        let mut text = Vec::new();
        let read = if path.as_os_str() == "-" {
            io::stdin().lock().take(LONGEST_PROFILE).read_to_end(&mut text)
        } else {
            fs::File::open(path).and_then(|file| file.take(LONGEST_PROFILE).read_to_end(&mut text))
        };
        read.map_err(|error| failed().because(error))?;
        Ok(Some(DiskProfile::parse(&text).map_err(|error| failed().because(error))?))
    }
}

impl QueueOptions {
    fn queue(self) -> Option<Queue> {
        Some(Queue { scheduler: self.scheduler?, wbt_lat_usec: self.wbt })
    }
}

impl Slowdisk {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        match self.command {
            Command::Mount(mount) => mount.run(),
            Command::Guard(guard) => {
                guard.run();
                Ok(Verdict::Yes)
            }
            Command::Status { point, json, follow: false } => list(point.as_deref(), json),
            Command::Status { point, .. } => point.map_or(Ok(Verdict::No), |point| follow(&point)),
            Command::Profile { which } => print_profile(&which),
            Command::Change { point, kind, delays, queue } => change(&point, &kind, delays, queue),
            Command::Umount { point } => umount(&point),
        }
    }
}

fn print_profile(which: &str) -> Result<Verdict, Error> {
    let text = match DiskProfile::named(which) {
        Some(profile) => profile.to_text(),
        None => match one(Path::new(which))? {
            Some((status, _)) => status.profile,
            None => {
                let kinds = DiskProfile::ALL.map(|profile| profile.name).join(", ");
                Error::new(FailureCategory::User, format!("find a slow disk at {which}"))
                    .hint(format!("or give a model: {kinds}"))
                    .report();
                return Ok(Verdict::No);
            }
        },
    };
    write!(screen::stdout(), "{text}")?;
    Ok(Verdict::Yes)
}

fn change(
    point: &Path,
    kind: &KindOfDisk,
    delays: Option<Delays>,
    queue: QueueOptions,
) -> Result<Verdict, Error> {
    let profile = kind.profile()?.map(|profile| ModelRequest::Profile(profile.to_text()));
    let delays = delays.map(|delays| {
        ModelRequest::Delays(match delays {
            Delays::On => service::Delays::On,
            Delays::Off => service::Delays::Off,
        })
    });
    let queue = queue.queue().map(ModelRequest::Queue);
    if profile.is_none() && queue.is_none() && delays.is_none() {
        return Err(Error::new(
            FailureCategory::User,
            format!("change the disk at {}", point.display()),
        )
        .because("no option says what to change")
        .hint("use --model, --profile, --scheduler or --delays"));
    }
    let Some((mut status, server)) = one(point)? else { return Ok(none(point)) };
    for asked in [profile, queue, delays].into_iter().flatten() {
        status = asking(point, &server, &asked)?;
    }
    show(&[status])?;
    Ok(Verdict::Yes)
}

fn umount(point: &Path) -> Result<Verdict, Error> {
    let Some((_, server)) = one(point)? else { return Ok(none(point)) };
    asking(point, &server, &ModelRequest::Unmount).map_err(|error| {
        error.hint(format!("show the processes that use it with: fuser -vm {}", point.display()))
    })?;
    // When it hangs up, everything is gone.
    let _ = sys::socket::wait_hung_up(&server);
    Ok(Verdict::Yes)
}

fn asking(point: &Path, server: &OwnedFd, asked: &ModelRequest) -> Result<DiskStatus, Error> {
    let what = if *asked == ModelRequest::Unmount { "unmount" } else { "change" };
    let failed =
        || Error::new(FailureCategory::Busy, format!("{what} the disk at {}", point.display()));
    match service::ask(server, asked) {
        Ok(ModelReply::Status(status)) => Ok(status),
        Ok(ModelReply::Refused(why)) => Err(failed().because(why)),
        Err(error) => Err(failed().because(error)),
    }
}

fn none(point: &Path) -> Verdict {
    Error::new(FailureCategory::User, format!("find a slow disk at {}", point.display()))
        .hint("list the mounted disks with: unjank slowdisk status")
        .report();
    Verdict::No
}

/// Finds the disk that is mounted at `point`.
fn one(point: &Path) -> Result<Option<(DiskStatus, OwnedFd)>, Error> {
    let point = point.canonicalize().unwrap_or_else(|_| point.to_owned());
    Ok(all()?.into_iter().find(|(status, _)| status.point == point))
}

/// Asks all servers; those that are about to end are not there.
fn all() -> Result<Vec<(DiskStatus, OwnedFd)>, Error> {
    let servers = service::servers(Path::new(FOLDER)).map_err(|error| {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        let error =
            Error::new(FailureCategory::Config, "contact the servers of slow disks").because(error);
        if denied { error.hint("run this command as root, for example with sudo") } else { error }
    })?;
    let ask = |(_, server): (String, OwnedFd)| match service::ask(&server, &ModelRequest::Status) {
        Ok(ModelReply::Status(status)) => Some((status, server)),
        Ok(ModelReply::Refused(_)) | Err(_) => None,
    };
    Ok(servers.into_iter().filter_map(ask).collect())
}

/// What `--json` prints.
#[derive(Serialize)]
struct SlowdiskDocument<'a> {
    disks: &'a [DiskStatus],
}

fn list(point: Option<&Path>, json: bool) -> Result<Verdict, Error> {
    let found: Vec<DiskStatus> = match point {
        Some(point) => match one(point)? {
            Some((status, _)) => vec![status],
            None => return Ok(none(point)),
        },
        None => all()?.into_iter().map(|(status, _)| status).collect(),
    };
    if json {
        document::print("unjank.slowdisk/1", &SlowdiskDocument { disks: &found })?;
    } else if found.is_empty() {
        writeln!(screen::stdout(), "No slow disk is mounted.")?;
    } else {
        show(&found)?;
    }
    Ok(Verdict::Yes)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn size(bytes: u64) -> String {
    Quantity::Size.show(bytes as f64)
}

fn show(found: &[DiskStatus]) -> Result<(), Error> {
    let columns = [
        ("directory", Align::Text),
        ("device", Align::Text),
        ("model", Align::Text),
        ("scheduler", Align::Text),
        ("wbt", Align::Text),
        ("reads", Align::Point),
        ("writes", Align::Point),
        ("flushes", Align::Point),
        ("read", Align::Point),
        ("written", Align::Point),
        ("waiting", Align::Point),
    ];
    let mut table = TextTable::new(&columns);
    for status in found {
        let Traffic { read_bytes, written_bytes, flushes, reads, writes, waiting, .. } =
            status.traffic;
        let slow = if status.delays == service::Delays::On { "" } else { " (no delays)" };
        let wbt = status.queue.wbt_lat_usec;
        table.row(vec![
            status.point.display().to_string().into(),
            status.device.clone().into(),
            format!("{}{slow}", status.model).into(),
            status.queue.scheduler.clone().into(),
            wbt.map_or("-".to_owned(), |usec| format!("{usec} µs")).into(),
            reads.to_string().into(),
            writes.to_string().into(),
            flushes.to_string().into(),
            size(read_bytes).into(),
            size(written_bytes).into(),
            waiting.to_string().into(),
        ]);
    }
    catalogue::print_table(&mut screen::stdout(), &table)
}

/// Prints what goes through a disk, a line a second.
fn follow(point: &Path) -> Result<Verdict, Error> {
    let Some((status, server)) = one(point)? else { return Ok(none(point)) };
    let mut before = status.traffic;
    let mut out = screen::stdout();
    writeln!(
        out,
        "{:>8} {:>8} {:>8} {:>11} {:>11} {:>6} {:>8}",
        "reads/s", "writes/s", "flushes", "read/s", "written/s", "busy", "waiting"
    )?;
    out.flush()?;
    while service::pass(&server) {
        let Ok(ModelReply::Status(status)) = service::ask(&server, &ModelRequest::Status) else {
            break;
        };
        let now = status.traffic;
        let grown = |now: u64, before: u64| now.saturating_sub(before);
        // Of a second, give or take a thousandth.
        let busy = grown(now.busy_us, before.busy_us) / 10_000;
        writeln!(
            out,
            "{:>8} {:>8} {:>8} {:>11} {:>11} {:>5}% {:>8}",
            grown(now.reads, before.reads),
            grown(now.writes, before.writes),
            grown(now.flushes, before.flushes),
            size(grown(now.read_bytes, before.read_bytes)),
            size(grown(now.written_bytes, before.written_bytes)),
            busy,
            now.waiting,
        )?;
        out.flush()?;
        before = now;
    }
    Ok(Verdict::Yes)
}

/// Returns the words that start a guard.
fn guard_words(point: &Path, name: &str) -> [OsString; 4] {
    ["slowdisk".into(), "guard".into(), point.into(), name.into()]
}
