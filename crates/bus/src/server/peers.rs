//! What the bus tells us: which process a sender is, and what became of our name.

use std::collections::HashMap;

use zbus::Message;
use zbus::message::Type;

use super::{Incoming, Question, Server};

impl Server {
    /// Asks which process `sender` is; [`Incoming::Process`] follows, unless `false` is returned: the bus cannot be asked.
    ///
    /// A bus never gives a unique name a second time, so the answer holds for ever and nobody has to
    /// watch the sender leave, which would wake us each time a program ends.
    pub fn identify(&mut self, sender: &str) -> bool {
        if self.unique_name().is_empty() {
            return false;
        }
        let serial = self.link.ask_bus("GetConnectionUnixProcessID", &sender);
        self.questions
            .extend(serial.map(|serial| (serial, Question::ProcessOf(sender.to_owned()))));
        serial.is_some()
    }
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
        Type::Signal => (header.member()?.as_str() == "NameLost").then_some(Incoming::NameLost),
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
