//! Changing an image that is at hand: most changes touch one key, and leave nearly all of its bytes as they are.

mod data_sum;
mod keys;
mod place;
mod sections;
mod values;

#[cfg(test)]
mod tests;

use std::ops::Deref;

use super::layout::names_limit;
use super::stamp;
use data_sum::DataSum;
use sections::Sections;

/// The most changes of one patch: each is a pass over the image, and at some point writing anew is quicker.
const MAX_CHANGES: usize = 16;
/// The most of them that may add a key or take one out: these copy the image.
const MAX_KEY_CHANGES: usize = 6;

/// An image that can be patched, and what the last patch knows of its checksum, so that the next need not read all of it.
///
/// Two are equal if their bytes are.
#[derive(Clone, Debug, Default, Eq)]
pub struct PatchableImage {
    bytes: Vec<u8>,
    /// The checksum of its names and values, if they have been read.
    data_sum: Option<DataSum>,
}

impl PatchableImage {
    /// Gives back memory beyond its length.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

impl From<Vec<u8>> for PatchableImage {
    /// An image that [`write`](super::write()) made, or that was read.
    fn from(bytes: Vec<u8>) -> PatchableImage {
        PatchableImage { bytes, data_sum: None }
    }
}

impl From<PatchableImage> for Vec<u8> {
    fn from(image: PatchableImage) -> Vec<u8> {
        image.bytes
    }
}

impl Deref for PatchableImage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for PatchableImage {
    fn eq(&self, other: &PatchableImage) -> bool {
        self.bytes == other.bytes
    }
}

/// Gives keys of an image other values (`Some`) or takes them out (`None`), and gives the image another generation.
///
/// The result holds, byte for byte, the names, values and lists that [`write`](super::write()) makes of the changed
/// entries, in the same order. Only the number of buckets stays what it was when the image was written anew; without a
/// change of keys the whole result is the same.
///
/// `image` must be from `write` or from here, with a stamp: it is not looked at for damage. Values are the bytes of a
/// `v` in native byte order. `names_len` is the length of the names of all keys together after the change.
///
/// Returns `None` if the image is to be written anew: there are many changes, so many keys have come or gone that the
/// buckets do not fit any more, the last key went, or the format cannot hold the result.
#[must_use]
pub fn patch<'a>(
    image: impl Into<PatchableImage>,
    changes: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    names_len: usize,
    generation: u64,
) -> Option<PatchableImage> {
    let PatchableImage { bytes: mut image, data_sum } = image.into();
    let mut sum = match data_sum {
        Some(sum) => sum,
        None => DataSum::of(image.get(Sections::of(&image)?.data())?),
    };
    let mut key_changes = 0;
    for (number, (name, value)) in changes.into_iter().enumerate() {
        if number == MAX_CHANGES {
            return None;
        }
        let (patched, patched_sum) = match (value, place::find(&image, name)?) {
            (Some(value), place::Found::Key(key)) => {
                sum = values::set(&mut image, &key, value, sum)?;
                continue;
            }
            (Some(value), place::Found::Gap(gap)) => keys::insert(&image, &gap, value, sum)?,
            (None, place::Found::Key(key)) => keys::remove(&image, &key, sum)?,
            (None, place::Found::Gap(_)) => continue,
        };
        key_changes += 1;
        if key_changes > MAX_KEY_CHANGES {
            return None;
        }
        (image, sum) = (patched, patched_sum);
    }
    if names_len > names_limit(image.len()) {
        return None;
    }
    let data = Sections::of(&image)?.data();
    stamp::renew(&mut image, generation, data, sum.0)?;
    Some(PatchableImage { bytes: image, data_sum: Some(sum) })
}
