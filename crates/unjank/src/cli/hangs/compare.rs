//! `unjank hangs compare`: the rate of hangs before and after a moment, or before and after a part was switched on.

use ::hangs::compare::{ComparedHangs, compare};
use ::hangs::json::HangComparisonDocument;
use ::hangs::model::HangCause;
use ::hangs::remedy::HangRemedy;
use ::hangs::text::ComparedText;
use ::setup::SetupPart;
use clap::Args;
use report::text::visible;

use super::{Session, nanoseconds, parsed, print, program_name, unix_ns};
use crate::cli::setup::state;
use crate::cli::{document, screen};
use crate::error::{Error, FailureCategory, Verdict};
use ::setup::state::PartActivation;

#[derive(Debug, Args)]
pub(super) struct Comparison {
    /// The moment: yesterday, 10:30, 3 days, 2026-11-21T10:30; or a part of `unjank setup`, as relax: when it was switched on, and only those hangs that it mends.
    #[arg(value_name = "MOMENT|PART")]
    at: String,
    /// Only hangs of this program.
    #[arg(long, value_name = "NAME", value_parser = program_name())]
    program: Option<String>,
    /// Only hangs of this cause: sync, file-data and so on, or as `top --by cause` names it.
    #[arg(long, value_name = "CAUSE", value_parser = HangCause::parse)]
    cause: Option<HangCause>,
    /// Only hangs that waited for this file: the path that `top --by file` names, or its end, as recently-used.xbel.
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A moment to compare around.
struct ComparedMoment {
    at_ns: u64,
    /// How it is said.
    name: String,
    /// The part that was switched on, if it removes causes of hangs.
    part: Option<String>,
    /// What else is to be known.
    note: Option<&'static str>,
}

const AT_LOGIN: &str = "Only programs have it that were started after the next login: hangs until then count as after.";

/// Returns when a part was switched on.
fn since(session: &Session, part: SetupPart) -> Result<ComparedMoment, Error> {
    let error = |cause: &str| {
        let what = format!("compare before and after {} was switched on", part.name());
        Error::new(FailureCategory::User, what).because(cause)
    };
    let activation = state::of_session().on_since(part);
    let at_ns = activation.moment().map(unix_ns).ok_or_else(|| match activation {
        PartActivation::Off => error("it is not on").hint(format!("unjank setup {}", part.name())),
        _ => error("nobody knows since when").hint("unjank hangs compare MOMENT"),
    })?;
    let remedy = HangRemedy::ALL.into_iter().find(|remedy| remedy.part() == Some(part.name()));
    Ok(ComparedMoment {
        at_ns,
        name: format!("{} was switched on at {}", part.name(), session.style().moment(at_ns)),
        part: remedy.map(|_| part.name().to_owned()),
        note: remedy.filter(|remedy| remedy.begins_at_login()).map(|_| AT_LOGIN),
    })
}

/// Returns a path as it is stored: a shell leaves a `~` in quotes as it is.
fn stored_path(session: &Session, path: String) -> String {
    let below_home = path.strip_prefix("~/").zip(session.home.as_deref());
    match below_home.and_then(|(rest, home)| home.join(rest).into_os_string().into_string().ok()) {
        Some(path) => path,
        None => path,
    }
}

impl Comparison {
    pub(super) fn run(self, session: &Session) -> Result<Verdict, Error> {
        let Comparison { at, program, cause, file, json } = self;
        let now_ns = nanoseconds(&session.now);
        let part = SetupPart::ALL.into_iter().find(|part| part.name() == at.trim());
        let moment = match part {
            Some(part) => since(session, part)?,
            None => {
                let at_ns = parsed(&at, &session.now)?;
                let name = session.style().moment(at_ns);
                ComparedMoment { at_ns, name, part: None, note: None }
            }
        };
        if moment.at_ns > now_ns {
            return Err(Error::new(FailureCategory::User, "compare the rate of hangs")
                .hint("the moment has to be in the past"));
        }
        let stored = session.stored()?;
        let file = file.map(|file| stored_path(session, file));
        let counted = ComparedHangs { program, cause, file, part: moment.part };
        let (before, after) = counted.rates(&stored, moment.at_ns, now_ns);
        let compared = compare(before, after);
        let everything = ComparedHangs { part: None, ..counted.clone() };
        let all = counted.part.is_some().then(|| everything.rates(&stored, moment.at_ns, now_ns));
        if json {
            let document =
                HangComparisonDocument::of(moment.at_ns, counted, compared, all, &stored, now_ns);
            document::print("unjank.hangs.compare/1", &document)?;
        } else {
            let told = ComparedText {
                moment: &visible(&moment.name, screen::charset()),
                counted: &counted,
                all,
                note: moment.note,
            };
            print(&session.style().comparison(&compared, told, &stored, now_ns))?;
        }
        Ok(Verdict::Yes)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::OnceCell;
    use std::path::PathBuf;

    use jiff::Zoned;

    use super::*;

    fn session(dir: PathBuf) -> Session {
        let (disk, now) = (store::disk::real(), Zoned::now());
        Session { disk, dir, now, home: Some("/home/ana".into()), applied: OnceCell::new() }
    }

    #[test]
    fn rates_before_and_after_a_moment_that_is_to_come_are_not_compared() {
        let dir = tempfile::tempdir().unwrap();
        let session = session(dir.path().to_owned());
        let at = "9000-01-01".to_owned();
        let comparison = Comparison { at, program: None, cause: None, file: None, json: true };
        let error = comparison.run(&session).unwrap_err();
        assert!(error.to_string().contains("compare the rate of hangs"), "{error}");
    }

    #[test]
    fn a_tilde_that_a_shell_has_left_is_the_home() {
        let session = session("/nowhere".into());
        let stored = |path: &str| stored_path(&session, path.to_owned());
        assert_eq!(stored("~/a/b"), "/home/ana/a/b");
        assert_eq!(stored("/a/b"), "/a/b");
        assert_eq!(stored("recently-used.xbel"), "recently-used.xbel");
    }
}
