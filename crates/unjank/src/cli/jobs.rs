//! `unjank jobs`: what runs under `unjank run`, how it goes, and holding it by hand.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use jobs::keeper::{ControlRequest, JobStatus, ask};
use report::figure::{self, Quantity};
use report::table::{Align, TextTable};
use serde::Serialize;

use super::{catalogue, document, run, screen};
use crate::error::{Error, FailureCategory, Verdict};

/// List the commands that run under `unjank run`, pause and resume them.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exits with 0, 1 if there is no job with this ID, 2 on an error."
)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    other: Option<Command>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the jobs, the default
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hold a job until it is resumed
    Pause {
        /// The ID that `unjank jobs` shows.
        #[arg(value_name = "JOB", value_parser = number)]
        job: u32,
    },
    /// Resume a job; it is held again while other programs wait
    Resume {
        /// The ID that `unjank jobs` shows.
        #[arg(value_name = "JOB", value_parser = number)]
        job: u32,
    },
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "a job has a number, which `unjank jobs` shows".to_owned())
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Job {
    job: u32,
    #[serde(flatten)]
    status: JobStatus,
}

/// What `--json` prints.
#[derive(Serialize)]
struct JobsDocument<'a> {
    jobs: &'a [Job],
}

impl Jobs {
    pub(crate) fn run(self) -> Result<Verdict, Error> {
        match self.other {
            None => list(self.json),
            Some(Command::List { json }) => list(json),
            Some(Command::Pause { job }) => order(job, ControlRequest::Pause),
            Some(Command::Resume { job }) => order(job, ControlRequest::Resume),
        }
    }
}

fn folder() -> Result<PathBuf, Error> {
    run::jobs_folder().ok_or_else(|| {
        Error::new(FailureCategory::Config, "look for jobs")
            .because("there is no runtime directory")
            .hint("set XDG_RUNTIME_DIR to the session's runtime directory, and start the jobs with it")
    })
}

fn list(json: bool) -> Result<Verdict, Error> {
    run::sweep();
    let mut jobs = found(&folder()?)?;
    jobs.sort_by(|one, other| other.status.age_ms.total_cmp(&one.status.age_ms));
    let mut out = screen::stdout();
    if json {
        document::print("unjank.jobs/1", &JobsDocument { jobs: &jobs })?;
        return Ok(Verdict::Yes);
    }
    if jobs.is_empty() {
        writeln!(out, "No jobs. Start one with: unjank run -- CMD")?;
        return Ok(Verdict::Yes);
    }
    let columns = [
        ("job", Align::Text),
        ("command", Align::Text),
        ("state", Align::Text),
        ("since", Align::Point),
        ("held", Align::Point),
        ("reads", Align::Point),
        ("writes", Align::Point),
        ("read", Align::Point),
        ("written", Align::Point),
    ];
    let mut table = TextTable::new(&columns);
    for Job { job, status } in jobs {
        let watched = &status.watched;
        let state = match (status.paused, watched.held) {
            (true, _) => "paused",
            (false, true) => "held",
            (false, false) => "runs",
        };
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let size = |bytes: u64| Quantity::Size.show(bytes as f64);
        let rate = |rate: f64| format!("{}/s", Quantity::Size.show(rate));
        let time =
            |ms: f64| figure::duration(std::time::Duration::from_secs_f64(ms.max(0.0) / 1e3));
        table.row(vec![
            job.to_string().into(),
            status.command.join(" ").into(),
            state.into(),
            time(status.age_ms).into(),
            time(watched.held_ms()).into(),
            rate(watched.read_rate).into(),
            rate(watched.write_rate).into(),
            size(watched.read_bytes).into(),
            size(watched.written_bytes).into(),
        ]);
    }
    catalogue::print_table(&mut out, &table)?;
    Ok(Verdict::Yes)
}

/// Asks all keepers of this user; those that have just ended are not there.
fn found(folder: &std::path::Path) -> Result<Vec<Job>, Error> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        Error::new(FailureCategory::Config, format!("list the jobs in {}", folder.display()))
            .because(error)
    })?;
    let control_sockets = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let job = path.file_name()?.to_str()?.strip_suffix(".sock")?.parse::<u32>().ok()?;
        Some((job, path))
    });
    // A socket that refuses is left to `run::sweep`, which removes those of jobs that have ended: this one may be about to listen.
    let asked = control_sockets.filter_map(|(job, path)| {
        ask(&path, ControlRequest::Status).ok().map(|status| Job { job, status })
    });
    Ok(asked.collect())
}

fn order(job: u32, asked: ControlRequest) -> Result<Verdict, Error> {
    let control_socket = jobs::keeper::control_socket(&folder()?, job);
    match ask(&control_socket, asked) {
        Ok(_) => Ok(Verdict::Yes),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            let none = Error::new(FailureCategory::User, format!("find job {job}"));
            none.hint("unjank jobs lists the IDs").report();
            Ok(Verdict::No)
        }
        Err(error) => {
            Err(Error::new(FailureCategory::Busy, format!("contact job {job}")).because(error))
        }
    }
}
