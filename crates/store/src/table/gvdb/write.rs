//! Making the bytes of a table.

/// What an image holds besides its entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Image<'a> {
    /// The keys in the nested table `.locks`; without any there is no such table.
    pub locks: &'a [&'a str],
    /// The generation in the stamp; `None` makes an image without a stamp.
    pub generation: Option<u64>,
}

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// An entry's name is not a key path.
    #[error("cannot store {name:?}: not a key")]
    NotAKey {
        /// The name.
        name: String,
    },
}

/// Writes entries, dconf key paths in byte order, as one image.
///
/// # Errors
///
/// An entry that the format cannot hold.
pub fn write<'a>(
    entries: impl Iterator<Item = (&'a str, &'a [u8])>,
    image: &Image<'_>,
) -> Result<Vec<u8>, WriteError> {
    let _ = (entries, image);
    todo!()
}
