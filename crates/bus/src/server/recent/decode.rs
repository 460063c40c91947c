//! The arguments of calls to `org.unjank.Recent1`. An option that is not known is a mistake: it might have been a limit.

use std::collections::HashMap;
use std::path::PathBuf;

use recents::query::Query;
use recents::{Privacy, RecentTime};
use zbus::Variant;
use zbus::message::Body;

use super::{OpenedDocument, RecentCall};
use crate::errors::Refusal;

type Options<'a> = HashMap<&'a str, Variant<'a>>;

pub(super) fn add(body: &Body) -> Result<RecentCall, Refusal> {
    let (uri, options): (&str, Options<'_>) = body.deserialize().map_err(unreadable)?;
    let mut document = OpenedDocument { uri: uri.to_owned(), ..OpenedDocument::default() };
    for (name, value) in &options {
        match *name {
            "mime" => document.mime = Some(text(name, value)?),
            "application" => document.application = Some(text(name, value)?),
            "exec" => document.exec = Some(text(name, value)?),
            "groups" => document.groups = texts(name, value)?,
            "private" => {
                let is_private = bool::try_from(value).map_err(|_| wrong(name))?;
                document.privacy = if is_private { Privacy::Private } else { Privacy::Public };
            }
            _ => return Err(Refusal::Invalid(format!("the option {name:?}"))),
        }
    }
    Ok(RecentCall::Add(document))
}

pub(super) fn list(body: &Body) -> Result<RecentCall, Refusal> {
    let options: Options<'_> = body.deserialize().map_err(unreadable)?;
    let mut query = Query::default();
    for (name, value) in &options {
        let time = || i64::try_from(value).map(RecentTime).map_err(|_| wrong(name));
        match *name {
            "since" => query.since = Some(time()?),
            "before" => query.before = Some(time()?),
            "application" => query.application = Some(text(name, value)?),
            "mime" => query.mime = Some(text(name, value)?),
            "group" => query.group = Some(text(name, value)?),
            "below" => query.below = Some(PathBuf::from(text(name, value)?)),
            "most" => {
                let most = u32::try_from(value).map_err(|_| wrong(name))?;
                query.most = usize::try_from(most).ok();
            }
            _ => return Err(Refusal::Invalid(format!("the option {name:?}"))),
        }
    }
    Ok(RecentCall::List(query))
}

pub(super) fn forget(body: &Body) -> Result<RecentCall, Refusal> {
    body.deserialize().map(RecentCall::Forget).map_err(unreadable)
}

pub(super) fn private(body: &Body) -> Result<RecentCall, Refusal> {
    let (on, seconds): (bool, u64) = body.deserialize().map_err(unreadable)?;
    Ok(RecentCall::Private(on.then_some(seconds)))
}

fn text(name: &str, value: &Variant<'_>) -> Result<String, Refusal> {
    <&str>::try_from(value).map(str::to_owned).map_err(|_| wrong(name))
}

fn texts(name: &str, value: &Variant<'_>) -> Result<Vec<String>, Refusal> {
    let value = value.try_clone().map_err(|_| wrong(name))?;
    Vec::<String>::try_from(value).map_err(|_| wrong(name))
}

fn wrong(name: &str) -> Refusal {
    Refusal::Invalid(format!("the option {name:?} of this type"))
}

fn unreadable(_: zbus::Error) -> Refusal {
    Refusal::Invalid("these arguments".to_owned())
}
