//! What the files for viewers have in common: how long they may be.

/// The most bytes of a file: those of a message of Protobuf are counted in 31 bits, and its readers refuse more.
pub const MOST_BYTES: usize = i32::MAX as usize;

/// Why there is no file for a viewer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewerFileError {
    /// Nothing is written.
    #[error("it would have more than 2 GiB, which viewers do not read")]
    TooLong,
}

/// Returns the bytes of a file, unless they are too many.
///
/// # Errors
///
/// [`ViewerFileError::TooLong`].
pub fn check_length(bytes: Vec<u8>, most: usize) -> Result<Vec<u8>, ViewerFileError> {
    if bytes.len() > most { Err(ViewerFileError::TooLong) } else { Ok(bytes) }
}
