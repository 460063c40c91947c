//! What is kept of a document that was forgotten: a salted hash, by which it is known if it comes back and by nothing else.

use sha2::{Digest, Sha256};

use super::uri::Uri;

/// The random bytes of one journal, so that marks of different people cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Salt(pub [u8; 16]);

/// The hash of a URI under a [`Salt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub [u8; 16]);

impl Salt {
    /// Returns the mark of a document.
    #[must_use]
    pub fn mark(&self, uri: &Uri) -> Mark {
        let hash = Sha256::new().chain_update(self.0).chain_update(uri.as_str()).finalize();
        let mut mark = [0; 16];
        mark.copy_from_slice(&hash[..16]);
        Mark(mark)
    }
}
