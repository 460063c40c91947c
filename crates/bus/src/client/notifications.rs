//! `org.freedesktop.Notifications` (Desktop Notifications Specification 1.2), the calling end.

use std::collections::HashMap;

use zbus::Variant;

use super::{BusClient, ClientError, read};

const NAME: &str = "org.freedesktop.Notifications";
const PATH: &str = "/org/freedesktop/Notifications";
/// The server decides how long it shows a notification.
const ITS_OWN_TIME: i32 = -1;

/// A notification on the desktop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification<'a> {
    /// The program that sends it.
    pub program: &'a str,
    /// One line.
    pub summary: &'a str,
    /// Plain text: what servers take for markup is escaped before it is sent.
    pub body: &'a str,
    /// The number of the notification whose place it takes; 0 for none.
    pub replaces: u32,
}

impl BusClient {
    /// Shows a notification and returns its number.
    ///
    /// # Errors
    ///
    /// Nothing shows notifications in this session, or there is no answer in time; then it may be shown all the same.
    pub async fn notify(&self, notification: &Notification<'_>) -> Result<u32, ClientError> {
        let Notification { program, summary, body, replaces } = *notification;
        let body = escaped(body);
        let hints = HashMap::<&str, Variant<'_>>::new();
        let actions: [&str; 0] = [];
        let arguments = (program, replaces, "", summary, &*body, &actions[..], hints, ITS_OWN_TIME);
        read(&self.call(NAME, PATH, NAME, "Notify", &arguments).await?, NAME)
    }
}

/// Escapes what a server takes for markup, which some take in every body.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_body_is_text() {
        assert_eq!(escaped("<b>a&b</b>"), "&lt;b&gt;a&amp;b&lt;/b&gt;");
        assert_eq!(escaped("fsync ~/ä"), "fsync ~/ä");
    }
}
