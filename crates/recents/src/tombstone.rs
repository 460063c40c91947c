//! The salted hash that is kept of a forgotten document, by which it is recognised if a program adds it again.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::uri::Uri;

/// How long it is known what was forgotten: no program keeps an old list in memory for longer and then writes it.
pub const REMEMBERED_AS_FORGOTTEN: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The random bytes of one journal, so that marks of different people cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

/// The hash of a URI under a [`Salt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UriHash(pub [u8; 16]);

impl Salt {
    /// Returns the mark of a document.
    #[must_use]
    pub fn mark(&self, uri: &Uri) -> UriHash {
        let hash = Sha256::new().chain_update(self.0).chain_update(uri.as_str()).finalize();
        let mut mark = [0; 16];
        mark.copy_from_slice(&hash[..16]);
        UriHash(mark)
    }
}
