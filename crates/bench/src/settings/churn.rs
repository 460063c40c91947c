//! How long single writes take through the dconf client library: new keys, new values and resets in turn.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use super::add;
use super::latency::ordinary;
use super::peer_client::{self, DBUS, DCONF, PATH, create, missing, succeeded};
use crate::lab::{BenchError, BenchSide, Lab, Measuring};
use crate::row::{FigureRow, FigureTarget};
use fastrand::Rng;
use lab::keys::{self, SingleWrite, WriteKind};
use lab::session::{BenchSession, ServiceProgram};
use report::figure::Quantity;
use report::samples::Samples;
use sys::scratch;

/// The client in C.
const SOURCE: &str = include_str!("../../peers/dconf_write.c");
/// The name of its program.
const PROGRAM: &str = "dconf_write";
/// A service in C that answers and does no more, which shows what the rest of a write takes.
const BARE_SOURCE: &str = include_str!("../../peers/dconf_answer.c");
/// The name of its program.
const BARE_PROGRAM: &str = "dconf_answer";
/// Writes of each client before the clock counts: it connects to the bus, the service reads the file, and the peer's first
/// write to a new file is not synced.
const WARM_UP: usize = 3;
/// Writes of each client that count: three of each kind in a row.
const WRITES: usize = 60;

/// Measures single writes near 4,500 keys, in memory.
pub(super) fn churn_in_memory(lab: &Lab<'_>) -> Result<Vec<FigureRow>, BenchError> {
    let mut table = ordinary();
    let title = format!("{} keys ({})", table.len(), lab.memory.fs_type());
    let scratch = scratch::within(&lab.memory.dir).map_err(|error| missing(&error))?;
    let program = peer_client::compile(PROGRAM, SOURCE, DCONF, scratch.path())?;
    let image = keys::image(&table)?;
    let pair = lab.pair(&lab.memory, Some(&image))?;
    let bare = peer_client::compile(BARE_PROGRAM, BARE_SOURCE, DBUS, scratch.path())?;
    let bare = [&[][..], &["replace"]]
        .map(|arguments: &[&str]| bare_session(lab, &bare, arguments, &image));
    let [only_answers, replaces] = bare;
    let bare = [only_answers?, replaces?];
    let mut random = Rng::with_seed(keys::SEED);
    let mut all = <[Samples; 2]>::default();
    let mut of_kind = <[[Samples; 2]; 3]>::default();
    let mut of_bare = <[Samples; 2]>::default();
    for round in 0..lab.effort.of(10, 1) {
        let writes = keys::single_writes(&mut random, &mut table, WARM_UP + WRITES);
        let file = scratch.path().join(format!("writes-{round}"));
        create(&file, lines(&writes).as_bytes()).map_err(|error| missing(&error))?;
        for side in BenchSide::in_turn(round) {
            lab.go_on()?;
            for (kind, time) in run(&program, &file, pair.of(side))? {
                add(&mut all, side, time);
                add(&mut of_kind[kind as usize], side, time);
            }
        }
        for (session, samples) in bare.iter().zip(&mut of_bare) {
            lab.go_on()?;
            for (_, time) in run(&program, &file, session)? {
                samples.push(time);
            }
        }
    }
    let row = |id, title, [ours, peer]: [Samples; 2], target| FigureRow {
        id,
        title,
        quantity: Quantity::Time,
        ours,
        peer,
        target,
        note: "through the dconf client library on both sides, each write alone".to_owned(),
    };
    let of = |what: &str| format!("{what}, {title}");
    let bare_row = |id, what: &str, peer| {
        row(id, format!("the same (peer: {what})"), [all[0].clone(), peer], None)
    };
    let [answers, replaces] = of_bare;
    let bare = [
        bare_row("churn-answer", "bare, answers", answers),
        bare_row("churn-replace", "bare, replaces the file", replaces),
    ];
    let [insert, change, reset] = of_kind;
    let fifteenth = Some(FigureTarget::AtMost(1.0 / 15.0));
    let mut rows = vec![
        row("churn-tmpfs", of("new keys, values, resets"), all, fifteenth),
        row("churn-insert", of("of these a new key"), insert, fifteenth),
        row("churn-change", of("of these a new value"), change, None),
        row("churn-reset", of("of these a reset"), reset, None),
    ];
    rows.extend(bare);
    Ok(rows)
}

/// Starts a session with a bare service.
fn bare_session(
    lab: &Lab<'_>,
    program: &Path,
    arguments: &[&str],
    image: &[u8],
) -> Result<BenchSession, BenchError> {
    let mut service = ServiceProgram::plain(program);
    service.command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let session = BenchSession::start(&service, &lab.memory.dir, &lab.memory.dir)?;
    session.seed("user", image)?;
    Ok(session)
}

/// Writes what the client is to do.
fn lines(writes: &[SingleWrite]) -> String {
    let mut text = String::new();
    for SingleWrite { kind, key, value } in writes {
        // Writing to a text cannot fail.
        let _ = match value {
            Some(value) => writeln!(text, "{}\t{key}\t{}", kind.word(), value.print()),
            None => writeln!(text, "{}\t{key}", kind.word()),
        };
    }
    text
}

/// Has a new client make the writes in `file`, and returns how long each took.
fn run(
    program: &Path,
    file: &Path,
    session: &BenchSession,
) -> Result<Vec<(WriteKind, f64)>, BenchError> {
    let output = Command::new(program)
        .arg(file)
        .arg(WARM_UP.to_string())
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", session.config_home())
        .env("XDG_CONFIG_HOME", session.config_home())
        .env("XDG_RUNTIME_DIR", session.runtime_dir())
        .env("DBUS_SESSION_BUS_ADDRESS", session.address())
        .output()
        .map_err(|error| missing(&error))?;
    let text = succeeded(PROGRAM, output)?;
    let times: Option<Vec<(WriteKind, f64)>> = text.lines().map(time).collect();
    times.filter(|times| times.len() == WRITES).ok_or_else(|| BenchError::Peer {
        program: PROGRAM.to_owned(),
        cause: "it did not print a time for each write".to_owned(),
    })
}

/// Reads one line of the client.
fn time(line: &str) -> Option<(WriteKind, f64)> {
    let (word, time) = line.split_once(' ')?;
    let kinds = [WriteKind::Insert, WriteKind::Change, WriteKind::Reset];
    let kind = kinds.into_iter().find(|kind| kind.word() == word)?;
    Some((kind, time.parse().ok()?))
}
