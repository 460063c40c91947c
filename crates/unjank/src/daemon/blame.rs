//! Records calls for `dconf blame`, each as soon as the bus has said whose it is.

use std::collections::VecDeque;
use std::fmt::Write;

use bus::request::ReplyTo;
use session::settings::blame::{Blame, Call};

use super::senders::Senders;

/// The most that is kept; the original keeps everything for ever.
const MOST_BYTES: usize = 4 << 20;

/// The calls so far, if blame is on.
#[derive(Debug)]
pub(super) struct Record(Option<Recording>);

#[derive(Debug)]
struct Recording {
    blame: Blame,
    waiting: VecDeque<Waiting>,
}

/// A call whose process is not known yet.
#[derive(Debug)]
struct Waiting {
    sender: String,
    object_path: String,
    method: &'static str,
    parameters: String,
    asks: Option<ReplyTo>,
}

impl Record {
    pub(super) fn new(blame: bus::server::Blame) -> Record {
        let on = blame == bus::server::Blame::On;
        Record(on.then(|| Recording { blame: Blame::new(MOST_BYTES), waiting: VecDeque::new() }))
    }

    /// Takes a call; `parameters` is only asked for if blame is on.
    pub(super) fn add(
        &mut self,
        sender: &str,
        object_path: impl FnOnce() -> String,
        method: &'static str,
        parameters: impl FnOnce() -> String,
    ) {
        if let Some(recording) = &mut self.0 {
            recording.waiting.push_back(Waiting {
                sender: sender.to_owned(),
                object_path: object_path(),
                method,
                parameters: parameters(),
                asks: None,
            });
        }
    }

    /// Takes a call of `Blame`, which is answered when it and all calls before it are recorded.
    pub(super) fn ask(&mut self, reply_to: ReplyTo) {
        if let Some(recording) = &mut self.0 {
            recording.waiting.push_back(Waiting {
                sender: reply_to.sender().to_owned(),
                object_path: "/ca/desrt/dconf".to_owned(),
                method: "Blame",
                parameters: "()".to_owned(),
                asks: Some(reply_to),
            });
        }
    }

    /// Records what can be recorded now and returns who is to be answered, with the text.
    pub(super) fn settle(&mut self, senders: &Senders) -> Option<(ReplyTo, &str)> {
        let recording = self.0.as_mut()?;
        while let Some(first) = recording.waiting.front() {
            let pid = match senders.identity(&first.sender) {
                Some(Ok(pid)) => Ok(*pid),
                Some(Err(text)) => Err(&**text),
                None if senders.is_forgotten(&first.sender) => Err("the sender is forgotten"),
                None => return None,
            };
            recording.blame.record(Call {
                sender: &first.sender,
                object_path: &first.object_path,
                method: first.method,
                parameters: &first.parameters,
                pid,
            });
            if let Some(reply_to) = recording.waiting.pop_front().and_then(|first| first.asks) {
                return Some((reply_to, recording.blame.text()));
            }
        }
        None
    }

    /// Says whether nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|recording| recording.waiting.is_empty())
    }
}

/// Prints the arguments of a `Change` as GVariant text.
pub(super) fn change_parameters(blob: &[u8]) -> String {
    let mut text = String::from("(");
    match blob {
        [] => text.push_str("@ay []"),
        [first, rest @ ..] => {
            let _ = write!(text, "[byte {first:#04x}");
            for byte in rest {
                let _ = write!(text, ", {byte:#04x}");
            }
            text.push(']');
        }
    }
    text.push_str(",)");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_printed_as_gvariant_text() {
        assert_eq!(change_parameters(&[]), "(@ay [],)");
        assert_eq!(change_parameters(&[47, 97, 5]), "([byte 0x2f, 0x61, 0x05],)");
    }
}
