//! The arguments of a host command, read from its message.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use host::command::{
    self, AfterCaller, CommandOptions, CommandRequest, InheritedVariables, Scheduling, StartError,
};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use wire::body::BodyValue;
use zbus::message::Body;
use zbus::wire::signature::Child;
use zbus::{Fd, Message, Signature, Type, Variant};

use crate::errors::Refusal;

/// No variables but those of the caller.
const CLEAR_ENV: u32 = 1;
/// The command ends when its caller leaves the bus.
const WATCH_BUS: u32 = 2;

/// The longest body that is read. No kernel executes a program with more than 6 MiB of arguments and variables, and each word
/// takes no more here than there.
const MOST_BYTES: usize = 8 << 20;
/// Which argument of `HostCommandWithOptions` holds its options, from 0.
const OPTIONS_AT: usize = 5;
/// The most options of a call; five are known.
const MOST_OPTIONS: usize = 16;
/// The most texts of an option.
const MOST_TEXTS: usize = 4096;

/// How many characters of a caller's text are said in an error.
const MOST_SAID: usize = 256;

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
pub(super) fn command(body: &Body) -> Result<CommandRequest, NoCommand> {
    check_length(body)?;
    let arguments: Arguments<'_> = body.deserialize().map_err(unreadable)?;
    request(arguments, CommandOptions::default())
}

/// Reads the arguments of `HostCommandWithOptions`, whose signature was checked.
pub(super) fn command_with_options(
    message: &Message,
    body: &Body,
) -> Result<CommandRequest, NoCommand> {
    check_length(body)?;
    if !has_small_options(message) {
        return Err(NoCommand::Refused(Refusal::Invalid("these options".to_owned())));
    }
    let (directory, words, fds, variables, flags, given): WithOptions<'_> =
        body.deserialize().map_err(unreadable)?;
    let options = options(given).map_err(NoCommand::Refused)?;
    request((directory, words, fds, variables, flags), options)
}

/// Says whether the options are few, and each is a number, a text or a list of texts, without reading them: zbus makes a
/// value of each byte of an array in a variant.
fn has_small_options(message: &Message) -> bool {
    let is_small = |value: &BodyValue<'_>| match value {
        BodyValue::Array(texts) => {
            texts.element() == "s" && texts.items().nth(MOST_TEXTS).is_none()
        }
        BodyValue::Bytes(_)
        | BodyValue::Structure(_)
        | BodyValue::Entry(_)
        | BodyValue::Variant(..) => false,
        _ => true,
    };
    let bytes: &[u8] = message.data();
    let Ok(header) = wire::message(bytes) else { return false };
    let options = wire::body::values(&header).nth(OPTIONS_AT);
    let Some(Ok(BodyValue::Array(options))) = options else { return false };
    options.items().enumerate().all(|(count, option)| match option {
        Ok(BodyValue::Entry(pair)) => {
            count < MOST_OPTIONS
                && matches!(&pair.1, BodyValue::Variant(_, value) if is_small(value))
        }
        _ => false,
    })
}

/// Refuses what is too long before it is read, which would hold up the calls of others.
fn check_length(body: &Body) -> Result<(), NoCommand> {
    if body.len() <= MOST_BYTES {
        return Ok(());
    }
    let source = std::io::ErrorKind::ArgumentListTooLong.into();
    Err(NoCommand::NotStarted(StartError::Program { command: String::new(), source }))
}

/// A handle beyond the descriptors that came along, or bytes that no bus would have passed on.
fn unreadable(error: zbus::Error) -> NoCommand {
    NoCommand::Refused(Refusal::Invalid(format!("these arguments: {error}")))
}

fn request(arguments: Arguments<'_>, options: CommandOptions) -> Result<CommandRequest, NoCommand> {
    let (directory, words, Pairs(descriptors), Pairs(variables), flags) = arguments;
    if flags & !(CLEAR_ENV | WATCH_BUS) != 0 {
        return Err(NoCommand::Refused(Refusal::UnknownFlags));
    }
    let descriptors: Vec<(u32, BorrowedFd<'_>)> =
        descriptors.iter().map(|(target, fd)| (*target, fd.as_fd())).collect();
    Ok(CommandRequest {
        directory: unterminated(directory).to_vec(),
        arguments: words.into_iter().map(|word| unterminated(word).to_vec()).collect(),
        descriptors: command::adopt(&descriptors).map_err(NoCommand::NotStarted)?,
        variables,
        inherits: match flags & CLEAR_ENV {
            0 => InheritedVariables::Session,
            _ => InheritedVariables::Nothing,
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

fn options(given: HashMap<String, Variant<'_>>) -> Result<CommandOptions, Refusal> {
    let mut options = CommandOptions::default();
    for (name, value) in given {
        // Only names that are known, none of which is long.
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
            _ => {
                let name: String = name.chars().take(MOST_SAID).collect();
                return Err(Refusal::Invalid(format!("the unknown option {name:?}")));
            }
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(options: &HashMap<&str, Variant<'_>>) -> Message {
        let words: Vec<&[u8]> = vec![b"true\0"];
        let none = HashMap::<u32, Fd<'_>>::new();
        let variables = HashMap::<&str, &str>::new();
        let arguments = (&b"/\0"[..], words, none, variables, 0_u32, options);
        let call = Message::method_call("/org/freedesktop/Flatpak/Development", "X");
        call.build(&arguments).unwrap()
    }

    #[test]
    fn options_that_would_become_many_values_are_refused_before_they_are_read() {
        let texts: Vec<&str> = vec!["x"; MOST_TEXTS];
        let usual = HashMap::from([
            ("nice", Variant::from(5_i32)),
            ("idle", Variant::from(true)),
            ("timeout-ms", Variant::from(5_u64)),
            ("unset-env", Variant::from(texts)),
        ]);
        assert!(has_small_options(&call(&usual)));
        assert!(has_small_options(&call(&HashMap::new())));
        let texts: Vec<&str> = vec!["x"; MOST_TEXTS + 1];
        for value in [Variant::from(vec![0_u8; 9]), Variant::from(texts), Variant::from((1, 2))] {
            assert!(!has_small_options(&call(&HashMap::from([("nice", value)]))));
        }
        let names: Vec<String> = (0..=MOST_OPTIONS).map(|number| number.to_string()).collect();
        let many = names.iter().map(|name| (name.as_str(), Variant::from(1_i32))).collect();
        assert!(!has_small_options(&call(&many)));
    }
}
