//! A model disk that all programs see: who asks how it goes, changes it or ends it, and who cleans up when its server is killed.
//!
//! The server holds the disk. A *guard* beside it holds the other end of a socket pair: when that breaks without a word, the server was killed, and the guard unmounts what it left.
//! Where both were killed at once, the next one who asks finds nobody at the socket and does it.

use report::error::chain;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use sys::message::{receive, send};
use sys::socket;

use super::disk::{ModelDisk, mounted, unmount_left};
use super::fuse::Traffic;
use super::profile::DiskProfile;
use super::queue::Queue;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the server looks whether it is to end.
const ROUND: Duration = Duration::from_millis(200);
/// Visitors at a time.
const VISITORS: usize = 16;
/// How many callers wait at most until they are looked at.
const WAITING: i32 = 16;

/// Whether requests take their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delays {
    /// They do.
    On,
    /// They are answered at once: while a disk is filled.
    Off,
}

/// What a server is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelRequest {
    /// How it goes.
    Status,
    /// To be another kind of disk: the text of a profile.
    Profile(String),
    /// To take its time, or not.
    Delays(Delays),
    /// To set its queue.
    Queue(Queue),
    /// To unmount it and end, unless somebody uses it.
    Unmount,
}

/// How a disk is and what has gone through it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DiskStatus {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Its loop device in sysfs.
    pub device: String,
    /// The process that serves it.
    pub process: u32,
    /// Its kind: `emmc`, or `own`.
    pub model: String,
    /// The whole profile as a file.
    pub profile: String,
    /// How its queue is set.
    pub queue: Queue,
    /// Whether requests take their time.
    pub delays: Delays,
    /// What has gone through.
    pub traffic: Traffic,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelReply {
    /// Done; how it is now.
    Status(DiskStatus),
    /// Not done, and why; it is as before.
    Refused(String),
}

/// Returns where the server of the disk on loop device `name` listens, in `folder`.
#[must_use]
pub fn control_socket(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

/// Asks over a connection and waits for the answer, two seconds at most.
///
/// # Errors
///
/// The server has ended or does not answer.
pub fn ask(connection: &OwnedFd, asked: &ModelRequest) -> io::Result<ModelReply> {
    send(connection, asked)?;
    if !socket::wait_readable(connection, Some(PATIENCE))? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    receive(connection)?.ok_or_else(|| io::ErrorKind::ConnectionReset.into())
}

/// Returns connections to all servers that listen in `folder`, and cleans up behind those that were killed together with their guards.
///
/// # Errors
///
/// The folder is there and cannot be read.
pub fn servers(folder: &Path) -> io::Result<Vec<(String, OwnedFd)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let path = entry.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.and_then(|name| name.strip_suffix(".sock")) else { continue };
        match socket::connect_to(&path) {
            Ok(connection) => found.push((name.to_owned(), connection)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                for (point, _) in mounted().iter().filter(|(_, device)| device == name) {
                    unmount_left(point, name);
                }
                // Its maker comes back under another name.
                let _ = fs::remove_file(&path);
            }
            // It has ended since its name was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// What the guard hears at a clean end.
#[derive(Serialize, Deserialize)]
struct CleanEnd;

/// Waits until the server behind `channel` has ended, and unmounts its disk if it was killed.
pub fn guard(channel: &OwnedFd, point: &Path, name: &str, control_socket: &Path) {
    // An error says that it is gone, too.
    let _ = socket::wait_readable(channel, None);
    if let Ok(Some(CleanEnd)) = receive(channel) {
        return;
    }
    unmount_left(point, name);
    let _ = fs::remove_file(control_socket);
}

/// Serves `disk` until it is unmounted or `stop` is set. `make_guard` starts a guard and returns our end of its socket.
///
/// A disk that is in use when it is to end goes on for its users, whom nobody else can see it beside; this returns when the last one is gone.
pub fn serve(
    mut disk: ModelDisk,
    listener: &OwnedFd,
    stop: &AtomicBool,
    mut guarding: Option<OwnedFd>,
    make_guard: impl Fn(&ModelDisk) -> io::Result<OwnedFd>,
) {
    let mut visitors: Vec<OwnedFd> = Vec::new();
    while !stop.load(Ordering::Relaxed) && !disk.is_over() {
        if guarding.is_none() {
            // Without one, only a kill of this process leaves something behind; it is tried again.
            guarding = make_guard(&disk).ok();
        }
        let ready = wait(listener, &visitors, guarding.as_ref());
        if ready.guard {
            guarding = None;
        }
        if ready.listener && visitors.len() < VISITORS {
            let visitor = socket::accept_at(listener).ok();
            visitors.extend(visitor.filter(is_of_this_user));
        }
        let mut unmounted = false;
        visitors.retain(|visitor| match receive::<ModelRequest>(visitor) {
            Ok(Some(asked)) => {
                let is_end = asked == ModelRequest::Unmount;
                let answer = answer(&mut disk, asked);
                unmounted |= is_end && matches!(answer, ModelReply::Status(_));
                send(visitor, &answer).is_ok()
            }
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(None) => false,
        });
        if unmounted {
            break;
        }
    }
    drop(disk);
    if let Some(guarding) = guarding {
        // It was killed.
        let _ = send(&guarding, &CleanEnd);
    }
}

/// Returns whether a caller is this server's user.
fn is_of_this_user(visitor: &OwnedFd) -> bool {
    let own = rustix::process::geteuid().as_raw();
    sys::peer::credentials(visitor).is_ok_and(|peer| peer.user == own)
}

struct Ready {
    listener: bool,
    guard: bool,
}

fn wait(listener: &OwnedFd, visitors: &[OwnedFd], guarding: Option<&OwnedFd>) -> Ready {
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(guarding.map(|guarding| PollFd::new(guarding, PollFlags::IN)));
    polled.extend(visitors.iter().map(|visitor| PollFd::new(visitor, PollFlags::IN)));
    let round = Timespec { tv_sec: 0, tv_nsec: i64::from(ROUND.subsec_nanos()) };
    // A signal ends the wait early, which does no harm.
    let _ = poll(&mut polled, Some(&round));
    let is_ready = |at: usize| polled.get(at).is_some_and(|one| !one.revents().is_empty());
    Ready { listener: is_ready(0), guard: guarding.is_some() && is_ready(1) }
}

fn answer(disk: &mut ModelDisk, asked: ModelRequest) -> ModelReply {
    let done = match asked {
        ModelRequest::Status => Ok(()),
        ModelRequest::Profile(text) => DiskProfile::parse(text.as_bytes())
            .map_err(|error| error.to_string())
            .and_then(|profile| disk.set_profile(profile).map_err(|error| chain(&error))),
        ModelRequest::Delays(delays) => {
            disk.set_delays(delays == Delays::On);
            Ok(())
        }
        ModelRequest::Queue(queue) => disk.set(&queue).map(drop).map_err(|error| chain(&error)),
        ModelRequest::Unmount => disk.unmount().map_err(|error| error.to_string()),
    };
    match done {
        Ok(()) => ModelReply::Status(status(disk)),
        Err(why) => ModelReply::Refused(why),
    }
}

/// Returns how a disk is.
#[must_use]
pub fn status(disk: &ModelDisk) -> DiskStatus {
    DiskStatus {
        point: disk.path(),
        device: disk.name().to_owned(),
        process: std::process::id(),
        model: disk.profile().name.to_owned(),
        profile: disk.profile().to_text(),
        queue: disk.queue(),
        delays: if disk.delays() { Delays::On } else { Delays::Off },
        traffic: disk.traffic(),
    }
}

/// Starts to listen for those who ask about the disk on loop device `name`.
///
/// # Errors
///
/// The folder or the socket cannot be made.
pub fn listen(folder: &Path, name: &str) -> io::Result<OwnedFd> {
    // Whoever may ask may take the disk away, or make it another one.
    sys::private_dir::make(folder)?;
    let path = control_socket(folder, name);
    // Of one with our device who was killed: the device was free.
    let _ = fs::remove_file(&path);
    socket::listen_privately(&path, WAITING)
}

/// Waits a second, or less if the server at the other end has ended. Returns whether it is there.
pub fn pass(connection: impl AsFd) -> bool {
    !socket::wait_readable(connection, Some(Duration::from_secs(1))).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_while_it_is_looked_for_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        // The name is there when it is read, and nothing is behind it when it is connected to.
        std::os::unix::fs::symlink("gone", folder.path().join("1.sock")).unwrap();
        assert!(servers(folder.path()).unwrap().is_empty());
        assert!(servers(&folder.path().join("none")).unwrap().is_empty());
    }
}
