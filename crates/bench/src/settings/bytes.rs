//! How much is written: to files in all, and to the disk.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sys::usage::Io;

use super::latency::{middle_key, ordinary};
use super::{JOURNAL, WRITER, WRITES_A_CONNECTION, add, change, set};
use crate::lab::{BenchError, BenchSide, Lab, Measuring};
use crate::row::{FigureRow, FigureTarget};
use lab::keys;
use lab::session::BenchSession;
use report::figure::Quantity;
use report::samples::Samples;

/// How long a hand drags a slider.
const DRAG: Duration = Duration::from_secs(3);
/// How long a program that never stops is watched.
const CHATTER: Duration = Duration::from_secs(10);
/// The peer takes up to two seconds to end.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn changesets(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let place = lab.disk()?;
    let count = lab.effort.of(keys::CHANGESETS, 100);
    let sets = keys::changesets(keys::SEED, count);
    let mut disk = <[Samples; 2]>::default();
    let mut calls = <[Samples; 2]>::default();
    let mut device = <[Samples; 2]>::default();
    let mut each = <[Samples; 2]>::default();
    for side in BenchSide::in_turn(0) {
        let object = if side == BenchSide::Ours { JOURNAL } else { WRITER };
        let mut session = lab.session(side, place, None)?;
        let before = counters(&mut session, side)?;
        let device_before = place.device.as_ref().and_then(sys::device::Device::bytes_written);
        for part in sets.chunks(WRITES_A_CONNECTION) {
            let client = session.connect()?;
            for set in part {
                lab.go_on()?;
                let blob = set.encode();
                let (time, result) = lab.time(|| change(&client, side, object, &blob));
                result?;
                add(&mut each, side, time);
            }
        }
        let used = counters(&mut session, side)?.since(before);
        let at_exit = written_at_exit(&mut session, side)?;
        add(&mut disk, side, size(used.storage_bytes + at_exit));
        add(&mut calls, side, size(used.write_calls_bytes + at_exit));
        let device_after = place.device.as_ref().and_then(sys::device::Device::bytes_written);
        if let (Some(before), Some(after)) = (device_before, device_after) {
            add(&mut device, side, size(after.saturating_sub(before)));
        }
    }
    let fs_type = place.fs_type();
    let row = |id, title: String, quantity, [ours, peer]: [Samples; 2], target, note: &str| {
        FigureRow { id, title, quantity, ours, peer, target, note: note.to_owned() }
    };
    Ok(vec![
        row(
            "bytes-disk",
            format!("disk, {count} changesets ({fs_type})"),
            Quantity::Size,
            disk,
            Some(FigureTarget::AtMost(1.0 / 100.0)),
            "write_bytes of the service (whole pages), and what it writes when it ends; ours as journal/user, the peer's as Writer/user",
        ),
        row(
            "bytes-calls",
            format!("write calls, {count} changesets"),
            Quantity::Size,
            calls,
            None,
            "wchar of the service: files in memory count too",
        ),
        row(
            "bytes-device",
            format!("device, {count} changesets"),
            Quantity::Size,
            device,
            None,
            "sectors of the whole disk meanwhile, the file system's own journal and every other program's included",
        ),
        row(
            "changeset-disk",
            format!("a changeset of {count} ({fs_type})"),
            Quantity::Time,
            each,
            None,
            "from an empty database to a full one",
        ),
    ])
}

pub(super) fn slider(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let place = lab.disk()?;
    let table = ordinary();
    let image = keys::image(&table)?;
    let mut drag = <[Samples; 2]>::default();
    let mut chatter = <[Samples; 2]>::default();
    for side in BenchSide::in_turn(0) {
        let mut session = lab.session(side, place, Some(&image))?;
        let client = session.connect()?;
        change(&client, side, WRITER, &set(middle_key(&table), 0))?;
        // Seen by the service as a new program.
        let client = session.connect()?;
        let before = counters(&mut session, side)?;
        let start = lab.clock.monotonic();
        // A client library merges what comes while a write is under way, so the next one carries the latest value.
        let mut value = 1;
        let mut until = |end: Duration| -> Result<(), BenchError> {
            while lab.clock.monotonic().saturating_sub(start) < end {
                lab.go_on()?;
                change(&client, side, WRITER, &set(middle_key(&table), value))?;
                value += 1;
            }
            Ok(())
        };
        until(DRAG)?;
        add(&mut drag, side, size(counters(&mut session, side)?.since(before).storage_bytes));
        until(CHATTER)?;
        add(&mut chatter, side, size(counters(&mut session, side)?.since(before).storage_bytes));
    }
    let row = |id, what: &str, [ours, peer]: [Samples; 2]| {
        FigureRow {
        id,
        title: format!("disk, {what} ({})", place.fs_type()),
        quantity: Quantity::Size,
        ours,
        peer,
        target: None,
        note: "one client that writes whenever its last write was answered; write_bytes of the service"
            .to_owned(),
    }
    };
    Ok(vec![
        row("slider-disk", "3 s of a slider", drag),
        row("chatty-disk", "10 s of a slider", chatter),
    ])
}

fn counters(session: &mut BenchSession, side: BenchSide) -> Result<Io, BenchError> {
    let pid = session.service()?.pid();
    Io::of(pid).map_err(|source| BenchError::Counters { side: side.word(), source })
}

/// Ends the service and returns the length of the files that it made or replaced meanwhile.
fn written_at_exit(session: &mut BenchSession, side: BenchSide) -> Result<u64, BenchError> {
    let before = files(session.config_home());
    let service = session.service()?;
    let ended = service.terminate().and_then(|()| service.wait(PATIENCE));
    ended.map_err(|source| BenchError::Counters { side: side.word(), source })?;
    let after = files(session.config_home());
    Ok(after
        .iter()
        .filter(|(path, now)| before.get(*path).is_none_or(|then| then.0 != now.0))
        .map(|(_, (_, length))| length)
        .sum())
}

/// Returns inode and length of each file below `dir`.
fn files(dir: &Path) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(data) if data.is_dir() => found.extend(files(&entry.path())),
            Ok(data) => drop(found.insert(entry.path(), (data.ino(), data.len()))),
            Err(_) => (),
        }
    }
    found
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn size(bytes: u64) -> f64 {
    bytes as f64
}
