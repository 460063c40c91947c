//! A program to compare with, as the user names it.

/// A name and a command, in which `{id}` is the application and `{type}` the MIME type that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginPeer {
    /// What it is called in the table.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
}

/// Why a peer is none: there is no `=`, or nothing before or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a name and a command, for example 'xdg=xdg-mime query default {{type}}'")]
pub struct PeerError;

impl PluginPeer {
    /// Reads `name=command`; the command is split at spaces, and no shell sees it.
    ///
    /// # Errors
    ///
    /// It is not of that form.
    pub fn parse(text: &str) -> Result<PluginPeer, PeerError> {
        let (name, command) = text.split_once('=').ok_or(PeerError)?;
        let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if name.is_empty() || command.is_empty() {
            return Err(PeerError);
        }
        Ok(PluginPeer { name: name.to_owned(), command })
    }

    /// Returns the program and its arguments for what is asked.
    pub(super) fn words(&self, app: &str, mime_type: &str) -> Vec<String> {
        let place = |word: &String| word.replace("{id}", app).replace("{type}", mime_type);
        self.command.iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command() {
        let peer = PluginPeer::parse("gio=gio mime {type}").unwrap();
        assert_eq!(peer.words("a", "text/html"), ["gio", "mime", "text/html"]);
        for wrong in ["gio mime", "=gio", "gio="] {
            assert_eq!(PluginPeer::parse(wrong), Err(PeerError), "{wrong}");
        }
    }
}
