//! Changing an image that is at hand: most changes touch one key, and leave nearly all of its bytes as they are.

mod keys;
mod place;
mod values;

#[cfg(test)]
mod tests;

use super::layout::names_limit;
use super::stamp;

/// The most changes of one patch: each is a pass over the image, and at some point writing anew is quicker.
const MAX_CHANGES: usize = 16;
/// The most of them that may add a key or take one out: these copy the image.
const MAX_KEY_CHANGES: usize = 6;

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
    mut image: Vec<u8>,
    changes: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>,
    names_len: usize,
    generation: u64,
) -> Option<Vec<u8>> {
    let mut key_changes = 0;
    for (number, (name, value)) in changes.into_iter().enumerate() {
        if number == MAX_CHANGES {
            return None;
        }
        let patched = match (value, place::find(&image, name)?) {
            (Some(value), place::Found::Key(key)) => {
                values::set(&mut image, &key, value)?;
                continue;
            }
            (Some(value), place::Found::Gap(gap)) => keys::insert(&image, &gap, value)?,
            (None, place::Found::Key(key)) => keys::remove(&image, &key)?,
            (None, place::Found::Gap(_)) => continue,
        };
        key_changes += 1;
        if key_changes > MAX_KEY_CHANGES {
            return None;
        }
        image = patched;
    }
    if names_len > names_limit(image.len()) {
        return None;
    }
    stamp::renew(&mut image, generation)?;
    Some(image)
}
