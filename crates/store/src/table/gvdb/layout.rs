//! The bytes of a gvdb file.

/// Returns the hash of an item's full name.
#[must_use]
pub fn hash(name: &[u8]) -> u32 {
    hash_extend(5381, name)
}

/// Returns the hash of a name that begins with one whose hash is known.
#[must_use]
pub fn hash_extend(hash: u32, more: &[u8]) -> u32 {
    let _ = (hash, more);
    todo!()
}
