//! The one who lists: names first, attributes after, until the one who asked is gone.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::thread;

use store::stream::StreamBuilder;
use sys::dir::OpenDirectory;
use sys::thread::spawn_scoped;

use super::attributes::{Phase, Reader, Work};
use super::connection::Connection;
use super::details::Types;
use super::error::{Failure, ListingStep};
use super::fields::AttributeSet;
use super::follow::{self, Follower};
use super::intern::Strings;
use super::record::{FORMAT, done, failure, question_of, request_of, tag, wanted_of};
use super::request::{Following, ListingRequest, ThreadCount};
use super::scan::Scan;
use sys::clock::{Clock, SystemClock};

/// Threads are started when there are this many names to look at.
const MANY: u32 = 2000;
/// More threads than this do not read cached attributes faster: they wait for the same locks.
const MOST_CORES: usize = 4;
/// So many wait for a slow file system at once.
const WHEN_SLOW: usize = 8;

/// Lists what is asked for at the other end of `connection`, and returns when that is gone.
///
/// Whoever asks hears of everything that goes wrong; there is nobody else to tell.
pub fn serve(connection: Connection) {
    // The client is gone, or sent what is no request: nobody is left to be told.
    let _ = serve_one(&connection);
    connection.hang_up();
}

/// Lists as [`serve`] does, in a thread, and returns as soon as the other end is gone, whatever the thread waits for.
/// A worker process ends then, and takes with it what hangs.
///
/// # Errors
///
/// It is no connected socket of messages, or there is no thread.
pub fn serve_until_hung_up(connection: Connection) -> io::Result<()> {
    let watched = connection.watched()?;
    thread::Builder::new().name("listing".to_owned()).spawn(move || serve(connection))?;
    watched.wait()
}

fn serve_one(connection: &Connection) -> io::Result<()> {
    let request = loop {
        connection.wait(None)?;
        if let Some(message) = connection.receive()? {
            let message = message.map_err(invalid)?;
            let mut records = message.chunk().records().map_err(invalid)?;
            let record = records.next().filter(|record| record.tag == tag::REQUEST);
            let record = record.ok_or(io::ErrorKind::InvalidData)?;
            break request_of(record.payload).map_err(invalid)?;
        }
    };
    let work = Work::new();
    let clock = SystemClock::start();
    thread::scope(|scope| {
        // It sees first that the client is gone, whatever the others wait for.
        spawn_scoped(scope, "listing-wants", || listen(connection, &work))?;
        let listed = list(&request, connection, &work, &clock);
        if listed.is_err() {
            work.end();
            connection.hang_up();
        }
        listed
    })
}

/// Takes in what is wanted until the client is gone.
fn listen(connection: &Connection, work: &Work) {
    let wanted = || -> io::Result<()> {
        loop {
            connection.wait(None)?;
            let Some(message) = connection.receive()? else { continue };
            let message = message.map_err(invalid)?;
            for record in message.chunk().records().map_err(invalid)? {
                match record.tag {
                    tag::WANT => work.want(wanted_of(record.payload).map_err(invalid)?),
                    tag::ASK_DETAILS => work.ask(wanted_of(record.payload).map_err(invalid)?),
                    tag::CHECK => work.check(question_of(record.payload).map_err(invalid)?),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    };
    // However it ends, nothing more is asked for.
    let _ = wanted();
    work.end();
}

fn list(
    request: &ListingRequest,
    connection: &Connection,
    work: &Work,
    clock: &dyn Clock,
) -> io::Result<()> {
    let directory = match OpenDirectory::open(&request.path) {
        Ok(directory) => directory,
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(0);
            let mut builder = StreamBuilder::new(FORMAT);
            let path = request.path.clone();
            failure(&Failure { path, step: ListingStep::Open, number }, &mut builder)?;
            done(0, &mut builder)?;
            return connection.send(&builder);
        }
    };
    // Before the first name is read, so that no change is missed.
    let watch = match request.following {
        Following::Never => None,
        Following::Changes => follow::watch(&directory, request, connection, clock)?,
    };
    // Without any field, only entries whose type the directory does not tell are looked at.
    let fields = match request.fields {
        AttributeSet::NONE => AttributeSet::KIND,
        fields if fields.contains(AttributeSet::OWNER_NAMES) => fields | AttributeSet::OWNER,
        fields => fields,
    };
    let (strings, types) = (Strings::new(connection), Types::of(request));
    let reader = Reader {
        directory: &directory,
        fields,
        connection,
        work,
        clock,
        strings: &strings,
        types: &types,
    };
    let followed = watch.as_ref().map(|(watch, since)| {
        let follower = Follower::new(reader, request, watch, *since);
        (Mutex::new(follower), watch)
    });
    thread::scope(|scope| {
        let mut helpers = Vec::new();
        let mut help = || {
            if helpers.is_empty() {
                let (always, when_slow) = threads(request);
                let helper = |phase| {
                    let reader = &reader;
                    spawn_scoped(scope, "listing-reader", move || reader.run(phase))
                };
                // Where there is no further thread, those that there are read all.
                helpers.extend((1..always).map_while(|_| helper(Phase::First).ok()));
                helpers.extend((always..when_slow).map_while(|_| helper(Phase::WhenSlow).ok()));
            }
        };
        let scan = Scan { directory: &directory, request, connection, clock };
        let mut known = Vec::new();
        let scanned = scan.run(|names| {
            if watch.is_some() {
                known.push(Arc::clone(&names));
            }
            let total = names.first + names.count;
            if request.fields.is_empty() && !names.has_unknown {
                work.keep(names);
                return;
            }
            work.add(names);
            if total >= MANY {
                help();
            }
        });
        work.whole();
        let given = scanned?;
        // A few names are read here, unless that takes long.
        reader.run(Phase::UntilSlow)?;
        if work.is_left() {
            help();
        }
        reader.run(Phase::First)?;
        for helper in helpers {
            helper.join().map_err(|_| io::ErrorKind::Other)??;
        }
        let mut builder = StreamBuilder::new(FORMAT);
        done(given, &mut builder)?;
        connection.send(&builder)?;
        let Some((follower, watch)) = &followed else { return reader.run(Phase::Wanted) };
        follow::alone(follower).take(known, given);
        spawn_scoped(scope, "listing-changes", || follow::run(follower, watch, connection))?;
        reader.run_beside(
            || follow::alone(follower),
            |question| follow::alone(follower).check(question),
        )
    })
}

/// How many threads read attributes of a large directory, and how many of a slow one.
fn threads(request: &ListingRequest) -> (usize, usize) {
    match request.threads {
        ThreadCount::Exactly(count) => (count.get(), count.get()),
        ThreadCount::Adaptive => {
            let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (cores.min(MOST_CORES), WHEN_SLOW.max(cores.min(MOST_CORES)))
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
