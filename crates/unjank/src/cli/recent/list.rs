//! `recent list`: which documents were used, by whom and when.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use recents::projection;
use recents::query::Query;
use recents::{Existence, Privacy, RecentEntry, RecentTime, existence};
use report::paragraph::counted;
use report::table::{Align, TableCell, TextTable};
use serde_json::{Value as Json, json};
use sys::clock::{Clock, SystemClock};

use crate::cli::screen;
use crate::cli::{catalogue, moment};
use crate::error::{Error, FailureCategory, Verdict};

/// How many documents a person is shown if they do not say.
const SHOWN: usize = 20;
/// How long file systems are asked, in all.
const PATIENCE: Duration = Duration::from_millis(300);

/// List recent documents, the latest first.
///
/// Example: unjank recent list --since yesterday --app kate
///
/// The exit status is 1 if there is none.
#[derive(Debug, Args)]
pub(super) struct List {
    /// List only documents used since this time: 2h, yesterday, 10:30, 2026-11-21.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// List only documents used before this time.
    #[arg(long, value_name = "TIME")]
    before: Option<String>,
    /// List only documents that this program opened, such as kate or 'org.gnome.*'.
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// List only documents of this MIME type, such as 'image/*'.
    #[arg(long, value_name = "TYPE")]
    mime: Option<String>,
    /// List only documents of this group, such as Graphics.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// List only documents in this folder or below it.
    #[arg(long, value_name = "FOLDER")]
    below: Option<PathBuf>,
    /// List only documents that still exist. File systems that do not answer are skipped.
    #[arg(long)]
    existing: bool,
    /// List only the latest N documents [default: 20 on a terminal].
    #[arg(short, value_name = "N")]
    n: Option<usize>,
    /// Print URIs only, one on each line.
    #[arg(long, conflicts_with = "json")]
    uris: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let clock = SystemClock::start();
        let now = moment::local(clock.now());
        let is_screen = screen::is_terminal();
        let read =
            |text: &Option<String>| text.as_deref().map(|text| read_moment(text, &now)).transpose();
        let below = self.below.as_deref().map(super::absolute).transpose()?;
        let query = Query {
            since: read(&self.since)?,
            before: read(&self.before)?,
            application: self.app.clone(),
            mime: self.mime.clone(),
            group: self.group.clone(),
            below,
            most: None,
        };
        let mut recents = super::recents()?;
        let home = recents.places().home.clone();
        let list = projection::preview(&mut recents).map_err(|error| {
            Error::new(FailureCategory::Config, "list recent documents").because(error)
        })?;
        super::tell_damage(&mut recents);
        let mut found = query.select(&list);
        let usual = (is_screen && !self.json && !self.uris).then_some(SHOWN);
        let most = self.n.or(usual).unwrap_or(usize::MAX);
        let all = found.len();
        if !self.existing {
            found.truncate(most);
        }
        // Whoever only wants names need not wait for the disk.
        let is_asked = self.existing || !self.uris;
        let states = match is_asked {
            true => existence(&found, PATIENCE, &clock),
            false => vec![Existence::Unknown; found.len()],
        };
        let mut rows: Vec<(&RecentEntry, Existence)> = found.into_iter().zip(states).collect();
        if self.existing {
            rows.retain(|(_, state)| *state != Existence::Gone);
        }
        rows.truncate(most);
        let verdict = if rows.is_empty() { Verdict::No } else { Verdict::Yes };
        if self.json {
            let documents: Vec<Json> =
                rows.iter().map(|(entry, state)| to_json(entry, *state)).collect();
            catalogue::print_json(
                out,
                &json!({ "schema": "unjank.recent.list/1", "documents": documents }),
            )?;
        } else if self.uris {
            out.flush()?;
            let mut out = screen::data();
            for (entry, _) in &rows {
                writeln!(out, "{}", screen::name(entry.uri.as_str()))?;
            }
        } else if rows.is_empty() {
            writeln!(out, "No recent document matches.")?;
        } else {
            writeln!(out, "{}\n", headline(rows.len(), all, self.existing))?;
            let mut table = TextTable::new(&[
                ("document", Align::Text),
                ("used", Align::Text),
                ("by", Align::Text),
                ("type", Align::Text),
            ]);
            for (entry, state) in &rows {
                let name = super::shown(&entry.uri, &home);
                let name = if *state == Existence::Gone { format!("{name} (gone)") } else { name };
                let by = entry.applications.iter().max_by_key(|application| application.modified);
                table.row(vec![
                    TableCell::from(&*name),
                    report::moment::show(time_of(entry.last_used()), &now).into(),
                    by.map_or("", |application| &*application.name).into(),
                    entry.mime.as_deref().unwrap_or_default().into(),
                ]);
            }
            catalogue::print_table(out, &table)?;
        }
        Ok(verdict)
    }
}

fn headline(shown: usize, all: usize, existing: bool) -> String {
    match (existing, shown < all) {
        (false, true) => format!("The last {shown} of {}.", counted(all, "recent document")),
        (true, true) => format!("{} that may be there still.", counted(shown, "recent document")),
        _ => format!("{}.", counted(all, "recent document")),
    }
}

fn read_moment(text: &str, now: &jiff::Zoned) -> Result<RecentTime, Error> {
    let time = report::moment::parse(text, now).map_err(|why| {
        Error::new(FailureCategory::User, format!("parse the time {text:?}"))
            .because(std::io::Error::other(why))
    });
    time.map(RecentTime::of)
}

/// Returns a time of the list as the system has it.
fn time_of(at: RecentTime) -> SystemTime {
    let distance = Duration::from_micros(at.0.unsigned_abs());
    let time = match at.0 {
        0.. => SystemTime::UNIX_EPOCH.checked_add(distance),
        _ => SystemTime::UNIX_EPOCH.checked_sub(distance),
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Writes a time as the shared file has it.
fn written(at: RecentTime) -> Json {
    jiff::Timestamp::from_microsecond(at.0).map_or(Json::Null, |time| json!(time.to_string()))
}

fn to_json(entry: &RecentEntry, state: Existence) -> Json {
    let applications: Vec<Json> = entry
        .applications
        .iter()
        .map(|application| {
            json!({
                "name": application.name,
                "exec": application.exec,
                "count": application.count,
                "modified": written(application.modified),
            })
        })
        .collect();
    json!({
        "uri": entry.uri.as_str(),
        "path": entry.uri.to_path().and_then(|path| path.to_str().map(str::to_owned)),
        "mime": entry.mime,
        "groups": entry.groups,
        "title": entry.title,
        "description": entry.description,
        "private": entry.privacy == Privacy::Private,
        "added": written(entry.added),
        "modified": written(entry.modified),
        "visited": written(entry.visited),
        "exists": match state {
            Existence::There => json!(true),
            Existence::Gone => json!(false),
            Existence::Unknown => Json::Null,
        },
        "applications": applications,
    })
}
