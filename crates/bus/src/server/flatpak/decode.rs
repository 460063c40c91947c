//! The arguments of a host command, read from its message.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use session::host::command::{
    self, AfterCaller, Inherits, Options, Request, Scheduling, StartError,
};
use zbus::message::Body;
use zbus::wire::signature::Child;
use zbus::{Fd, Signature, Type, Variant};

use crate::errors::Refusal;

/// No variables but those of the caller.
const CLEAR_ENV: u32 = 1;
/// The command ends when its caller leaves the bus.
const WATCH_BUS: u32 = 2;

/// The pairs of a dictionary in their order, one key perhaps more than once.
struct Pairs<K, V>(Vec<(K, V)>);

impl<K: Type, V: Type> Type for Pairs<K, V> {
    const SIGNATURE: &'static Signature = &Signature::Dict {
        key: Child::Static { child: K::SIGNATURE },
        value: Child::Static { child: V::SIGNATURE },
    };
}

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All<K, V>(PhantomData<(K, V)>);
        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for All<K, V> {
            type Value = Pairs<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a dictionary")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(All(PhantomData))
    }
}

type Arguments<'a> = (&'a [u8], Vec<&'a [u8]>, Pairs<u32, Fd<'a>>, Pairs<String, String>, u32);
type WithOptions<'a> = (
    &'a [u8],
    Vec<&'a [u8]>,
    Pairs<u32, Fd<'a>>,
    Pairs<String, String>,
    u32,
    HashMap<String, Variant<'a>>,
);

/// Why a call brings no command.
pub(super) enum NoCommand {
    /// Its arguments are not those of the method.
    Refused(Refusal),
    /// They are, and cannot be met.
    NotStarted(StartError),
}

/// Reads the arguments of `HostCommand`, whose signature was checked.
pub(super) fn command(body: &Body) -> Result<Request, NoCommand> {
    let arguments: Arguments<'_> = body.deserialize().map_err(unreadable)?;
    request(arguments, Options::default())
}

/// Reads the arguments of `HostCommandWithOptions`, whose signature was checked.
pub(super) fn command_with_options(body: &Body) -> Result<Request, NoCommand> {
    let (directory, words, fds, variables, flags, given): WithOptions<'_> =
        body.deserialize().map_err(unreadable)?;
    let options = options(given).map_err(NoCommand::Refused)?;
    request((directory, words, fds, variables, flags), options)
}

/// A handle beyond the descriptors that came along, or bytes that no bus would have passed on.
fn unreadable(error: zbus::Error) -> NoCommand {
    NoCommand::Refused(Refusal::Invalid(format!("these arguments: {error}")))
}

fn request(arguments: Arguments<'_>, options: Options) -> Result<Request, NoCommand> {
    let (directory, words, Pairs(descriptors), Pairs(variables), flags) = arguments;
    if flags & !(CLEAR_ENV | WATCH_BUS) != 0 {
        return Err(NoCommand::Refused(Refusal::UnknownFlags));
    }
    let descriptors: Vec<(u32, BorrowedFd<'_>)> =
        descriptors.iter().map(|(target, fd)| (*target, fd.as_fd())).collect();
    Ok(Request {
        directory: unterminated(directory).to_vec(),
        arguments: words.into_iter().map(|word| unterminated(word).to_vec()).collect(),
        descriptors: command::adopt(&descriptors).map_err(NoCommand::NotStarted)?,
        variables,
        inherits: match flags & CLEAR_ENV {
            0 => Inherits::Session,
            _ => Inherits::Nothing,
        },
        after: match flags & WATCH_BUS {
            0 => AfterCaller::GoesOn,
            _ => AfterCaller::Ends,
        },
        options,
    })
}

/// Byte strings end with a zero, or do not: both are what they say.
fn unterminated(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(&[0]).unwrap_or(bytes)
}

fn options(given: HashMap<String, Variant<'_>>) -> Result<Options, Refusal> {
    let mut options = Options::default();
    for (name, value) in given {
        let wrong = || Refusal::Invalid(format!("the option {name:?} with this value"));
        match name.as_str() {
            "unset-env" => options.unset = Vec::try_from(value).map_err(|_| wrong())?,
            "nice" => options.nice = Some(i32::try_from(value).map_err(|_| wrong())?),
            "idle" if bool::try_from(&value).map_err(|_| wrong())? => {
                options.scheduling = Scheduling::Idle;
            }
            "idle" => {}
            "timeout-ms" => {
                let timeout = u64::try_from(value).map_err(|_| wrong())?;
                options.timeout = Some(Duration::from_millis(timeout));
            }
            _ => return Err(Refusal::Invalid(format!("the unknown option {name:?}"))),
        }
    }
    Ok(options)
}
