//! Records calls for `dconf blame`, each as soon as the bus has reported its process.

use std::collections::VecDeque;
use std::fmt::Write;

use bus::request::ReplyTo;
use settings::blame::{CallLog, LONGEST_PARAMETERS, LoggedCall};

use super::senders::Senders;

/// The most bytes that are kept; the original keeps everything for ever.
const MOST_BYTES: usize = 4 << 20;

/// The calls so far, if blame is on.
#[derive(Debug)]
pub(super) struct Record(Option<Recording>);

#[derive(Debug)]
struct Recording {
    blame: CallLog,
    waiting: VecDeque<UnattributedCall>,
}

/// A call whose process is not known yet.
#[derive(Debug)]
struct UnattributedCall {
    sender: String,
    object_path: String,
    method: &'static str,
    parameters: String,
    asks: Option<ReplyTo>,
}

impl Record {
    pub(super) fn new(blame: bus::server::CallRecording) -> Record {
        let on = blame == bus::server::CallRecording::On;
        Record(on.then(|| Recording { blame: CallLog::new(MOST_BYTES), waiting: VecDeque::new() }))
    }

    /// Records a call; `parameters` is only called if blame is on.
    pub(super) fn add(
        &mut self,
        sender: &str,
        object_path: impl FnOnce() -> String,
        method: &'static str,
        parameters: impl FnOnce() -> String,
    ) {
        if let Some(recording) = &mut self.0 {
            recording.waiting.push_back(UnattributedCall {
                sender: sender.to_owned(),
                object_path: object_path(),
                method,
                parameters: parameters(),
                asks: None,
            });
        }
    }

    /// Accepts a call of `Blame`, which is answered when it and all calls before it are recorded.
    pub(super) fn ask(&mut self, reply_to: ReplyTo) {
        if let Some(recording) = &mut self.0 {
            recording.waiting.push_back(UnattributedCall {
                sender: reply_to.sender().to_owned(),
                object_path: "/ca/desrt/dconf".to_owned(),
                method: "Blame",
                parameters: "()".to_owned(),
                asks: Some(reply_to),
            });
        }
    }

    /// Records the calls whose processes are known, and returns the calls of `Blame` to answer, with the text.
    pub(super) fn settle(&mut self, senders: &Senders<u32>) -> Option<(ReplyTo, &str)> {
        let recording = self.0.as_mut()?;
        while let Some(first) = recording.waiting.front() {
            let pid = match senders.identity(&first.sender) {
                Some(Ok(pid)) => Ok(*pid),
                Some(Err(text)) => Err(&**text),
                None if senders.is_forgotten(&first.sender) => Err("the sender is forgotten"),
                None => return None,
            };
            recording.blame.record(LoggedCall {
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

    /// Returns whether no call waits.
    pub(super) fn is_idle(&self) -> bool {
        self.0.as_ref().is_none_or(|recording| recording.waiting.is_empty())
    }
}

/// Prints the arguments of a `Change` as GVariant text; of a long one as much as is kept.
pub(super) fn change_parameters(blob: &[u8]) -> String {
    let mut text = String::from("(");
    // Each byte is several letters of text.
    let blob = blob.get(..LONGEST_PARAMETERS).unwrap_or(blob);
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

    #[test]
    fn of_a_long_call_only_what_is_kept_is_printed() {
        let text = change_parameters(&vec![7; 1 << 20]);
        assert!(text.len() > LONGEST_PARAMETERS && text.len() < 10 * LONGEST_PARAMETERS);
        assert!(text.starts_with("([byte 0x07, 0x07,"));
    }
}
