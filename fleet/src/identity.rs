//! Who a record is from, without a name: identifiers that are the same in each run and say nothing of a person.

use std::io;
use std::path::{Path, PathBuf};

use hangs::model::{Hang, HangFrame};
use sha2::{Digest, Sha256};
use store::disk::Disk;
use store::publish::is_link;

/// Keeps our hash of a machine apart from those that other programs make of it.
const PURPOSE: &[u8] = b"unjank hangs export 1";
/// The longest salt of a store, in bytes; ours have 16.
const MAX_SALT: u64 = 4096;
/// The longest name of a machine.
const MAX_NAME: usize = 64;

/// Why it is not known who the records are from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Nothing is exported.
    #[error("cannot read {path:?}")]
    NotRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing is exported.
    #[error("{path:?} holds no ID of a machine")]
    NoMachine {
        /// The file.
        path: PathBuf,
    },
    /// Nothing is exported.
    #[error("the name of a machine has 1 to 64 letters, digits, '.', '_' or '-', and no '.' first")]
    BadName,
}

/// The source of records: a machine, and a user on it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordSource {
    /// The machine: a name that its administrator gave, or 16 digits of a hash of its ID.
    pub machine: String,
    /// The store of one user on it: 8 digits of a hash.
    pub store: String,
}

/// Returns the first 64 bits of a hash over these parts.
#[must_use]
pub fn hash_parts(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the hash of a stack, by which rows name it; none for a record without one.
#[must_use]
pub fn hash_stack(frames: &[HangFrame], blamed: Option<u32>) -> Option<u64> {
    let blamed = blamed.map_or(u64::MAX, u64::from).to_le_bytes();
    let mut parts: Vec<&[u8]> = vec![&blamed];
    for frame in frames {
        parts.extend([frame.function.as_bytes(), frame.module.as_bytes()]);
    }
    (!frames.is_empty()).then(|| hash_parts(&parts))
}

impl RecordSource {
    /// Returns the source for the store in `dir`, on the machine of this name or ID.
    ///
    /// # Errors
    ///
    /// [`IdentityError`].
    pub fn find(
        disk: &dyn Disk,
        dir: &Path,
        name: Option<&str>,
        user: u32,
    ) -> Result<RecordSource, IdentityError> {
        let secret = match name {
            Some(name) => name.as_bytes().to_vec(),
            None => read_machine_id(disk)?,
        };
        let machine = match name {
            Some(name) => checked_name(name)?.to_owned(),
            None => format!("{:016x}", hash_parts(&[PURPOSE, &secret])),
        };
        // The salt of the store is its own.
        let path = dir.join("salt");
        let salt = match read_salt(disk, &path) {
            Ok(salt) => salt,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            // Without it all hangs would get other identifiers, and stand twice.
            Err(source) => return Err(IdentityError::NotRead { path, source }),
        };
        let store = hash_parts(&[PURPOSE, &secret, &user.to_le_bytes(), &salt]) >> 32;
        Ok(RecordSource { machine, store: format!("{store:08x}") })
    }

    /// Returns the identifier of a hang: the same for each state of a hang that goes on, which may be found to have begun later.
    #[must_use]
    pub fn hang_id(&self, hang: &Hang) -> u64 {
        hash_parts(&[
            self.machine.as_bytes(),
            self.store.as_bytes(),
            &hang.number.to_le_bytes(),
            &hang.process.to_le_bytes(),
            &hang.process_began_ns.to_le_bytes(),
        ])
    }

    /// Returns the name of this source's files, without an ending.
    #[must_use]
    pub fn file_stem(&self) -> String {
        format!("{}-{}", self.machine, self.store)
    }
}

fn checked_name(name: &str) -> Result<&str, IdentityError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain);
    if is_name && !name.starts_with('.') { Ok(name) } else { Err(IdentityError::BadName) }
}

/// Reads the salt of a store. What a link in its place points to is none, for the recorder, too.
fn read_salt(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    if is_link(disk, path)? {
        return Err(io::Error::other("it is a symbolic link"));
    }
    if disk.stat(path)?.len > MAX_SALT {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    disk.read(path)
}

fn read_machine_id(disk: &dyn Disk) -> Result<Vec<u8>, IdentityError> {
    let path = PathBuf::from("/etc/machine-id");
    let id = match disk.read(&path) {
        Ok(id) => id,
        Err(source) => return Err(IdentityError::NotRead { path, source }),
    };
    let id = id.trim_ascii().to_vec();
    // "uninitialized" stands there in the first boot of an image.
    if id.len() != 32 || !id.iter().all(u8::is_ascii_hexdigit) {
        return Err(IdentityError::NoMachine { path });
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_the_same_in_each_run_and_another_for_each_user_and_machine() {
        let disk = store::disk::real();
        let dir = Path::new("/nonexistent");
        let find = |name, user| RecordSource::find(&*disk, dir, Some(name), user).unwrap();
        assert_eq!(find("desk-1", 1000), find("desk-1", 1000));
        assert_ne!(find("desk-1", 1000).store, find("desk-1", 1001).store);
        assert_ne!(find("desk-1", 1000).store, find("desk-2", 1000).store);
        for name in ["", ".hidden", "a/b", "../x", "a b", &"x".repeat(65)] {
            RecordSource::find(&*disk, dir, Some(name), 1).unwrap_err();
        }
    }

    #[test]
    fn parts_of_a_hash_do_not_run_into_each_other() {
        assert_ne!(hash_parts(&[b"ab", b"c"]), hash_parts(&[b"a", b"bc"]));
    }
}
