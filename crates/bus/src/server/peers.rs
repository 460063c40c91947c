//! What the bus tells us: which process a sender is, when it left, and what became of our name.

use std::collections::HashMap;

use zbus::Message;
use zbus::message::Type;

use super::{Incoming, Question, Server};
use crate::raw::Reply;

impl Server {
    /// Asks which process `sender` is, and from now on tells when it leaves.
    ///
    /// Asked once per sender; [`Incoming::Process`] follows, and [`Incoming::Left`] at the end.
    pub fn identify(&mut self, sender: &str) {
        // A rule per sender: a rule for all names would wake us for each program that starts.
        self.link.ask_bus("AddMatch", &left_rule(sender), Reply::Unwanted);
        let serial = self.link.ask_bus("GetConnectionUnixProcessID", &sender, Reply::Wanted);
        let question = || Question::ProcessOf(sender.to_owned());
        self.questions.extend(serial.map(|serial| (serial, question())));
    }

    /// Stops watching a sender that has left.
    pub fn forget(&mut self, sender: &str) {
        self.link.ask_bus("RemoveMatch", &left_rule(sender), Reply::Unwanted);
    }
}

fn left_rule(sender: &str) -> String {
    format!(
        "type='signal',sender='org.freedesktop.DBus',interface='org.freedesktop.DBus',\
         path='/org/freedesktop/DBus',member='NameOwnerChanged',arg0='{sender}'"
    )
}

/// Reads a message that is no call.
pub(super) fn take(questions: &mut HashMap<u32, Question>, message: &Message) -> Option<Incoming> {
    let header = message.header();
    // Names that start with `org.freedesktop.DBus` belong to the bus alone.
    if header.sender().is_none_or(|sender| sender.as_str() != "org.freedesktop.DBus") {
        return None;
    }
    let body = message.body();
    match header.message_type() {
        Type::MethodCall => None,
        Type::Signal => match header.member()?.as_str() {
            "NameLost" => Some(Incoming::NameLost),
            "NameOwnerChanged" => {
                let (name, _, new): (&str, &str, &str) = body.deserialize().ok()?;
                (new.is_empty() && name.starts_with(':'))
                    .then(|| Incoming::Left { sender: name.to_owned() })
            }
            _ => None,
        },
        answer @ (Type::MethodReturn | Type::Error) => {
            match questions.remove(&header.reply_serial()?.get())? {
                Question::Release => Some(Incoming::Released),
                Question::ProcessOf(sender) => {
                    let text = || body.deserialize::<&str>().unwrap_or("no answer").to_owned();
                    let pid = match answer {
                        Type::MethodReturn => body.deserialize::<u32>().map_err(|_| text()),
                        _ => Err(text()),
                    };
                    Some(Incoming::Process { sender, pid })
                }
            }
        }
    }
}
