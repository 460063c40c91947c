//! Changing values in an image that is at hand: most changes leave its keys as they are, and with them its layout.

use super::layout::{ITEM_LEN, Item, LIST, TABLE, VALUE, hash, names_limit};
use super::read::Table;
use super::stamp;
use crate::table::ByteOrder;

/// The most changes of one patch: each may move what is behind it, and at some point writing anew is quicker.
const MAX_CHANGES: usize = 16;

/// Gives keys of an image other values, and the image another generation. The result is, byte for byte, what
/// [`write`](super::write()) makes of the changed entries.
///
/// `image` must be from `write`, with a stamp: it is not looked at for damage. Values are the bytes of a `v` in native
/// byte order. Returns `None` if that cannot be done in place: a key is not there, there are many changes, or the
/// result might be too large. Then the image is to be written anew.
#[must_use]
pub fn patch<'a>(
    mut image: Vec<u8>,
    changes: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    generation: u64,
) -> Option<Vec<u8>> {
    for (number, (name, value)) in changes.into_iter().enumerate() {
        if number == MAX_CHANGES {
            return None;
        }
        set(&mut image, name, value)?;
    }
    stamp::renew(&mut image, generation)?;
    Some(image)
}

/// Gives one key another value, and the stamp its sum.
fn set(image: &mut Vec<u8>, name: &str, value: &[u8]) -> Option<()> {
    let root = Table::open(image).ok().filter(|root| root.order == ByteOrder::NATIVE)?;
    let hash = hash(name.as_bytes());
    let (index, item) = root.find(hash, name, VALUE)?;
    // The stamp is in front of all values, so this place stays.
    let sum_at = stamp::sums_at(root)? + index as usize * 4;
    if value.len() != item.value.len() {
        make_room(image, item, value.len())?;
    }
    let start = item.value.start as usize;
    image.get_mut(start..)?.get_mut(..value.len())?.copy_from_slice(value);
    *image.get_mut(sum_at..)?.first_chunk_mut()? = stamp::value_sum(hash, value).to_ne_bytes();
    Some(())
}

/// Moves what is behind the value of `changed`, which becomes `len` bytes long.
///
/// Behind it are names, which follow each other without a gap, then the next value or the first list at its alignment.
/// From there on everything keeps its distances.
fn make_room(image: &mut Vec<u8>, changed: Item, len: usize) -> Option<()> {
    let root = Table::open(image).ok()?;
    let items_end = root.span.end as usize;
    let items = items_end - root.items.len() * ITEM_LEN..items_end;
    let old_end = changed.value.end;
    let mut next: Option<Item> = None;
    for item in root.items {
        let item = Item::decode(item);
        if item.value.start <= changed.value.start {
            continue;
        }
        if item.kind == TABLE {
            // Locks are behind the lists, at an alignment that the lists do not have.
            return None;
        }
        if next.is_none_or(|next| item.value.start < next.value.start) {
            next = Some(item);
        }
    }
    // Every key is in a directory, and every directory has a list.
    let next = next?;
    let (next, align) = (next.value.start, if next.kind == LIST { 4 } else { 8 });
    let between = root.items.iter().map(|item| Item::decode(item).part_span());
    let between = between.filter(|name| (old_end..next).contains(&name.start));
    let names_end = between.map(|name| name.end).max().unwrap_or(old_end);

    if names_end > next {
        return None;
    }
    let new_end = u32::try_from(len).ok()?.checked_add(changed.value.start)?;
    let new_names_end = new_end.checked_add(names_end - old_end)?;
    let new_next = new_names_end.checked_next_multiple_of(align)?;
    let tail_len = image.len().checked_sub(next as usize)?;
    let new_len = new_next as usize + tail_len;
    if u32::try_from(new_len).is_err() || names_limit(new_len) < names_limit(image.len()) {
        return None;
    }

    let move_names = |image: &mut Vec<u8>| {
        image.copy_within(old_end as usize..names_end as usize, new_end as usize);
    };
    if new_next >= next {
        image.resize(new_len, 0);
        image.copy_within(next as usize..next as usize + tail_len, new_next as usize);
        move_names(image);
    } else {
        move_names(image);
        image.copy_within(next as usize.., new_next as usize);
        image.truncate(new_len);
    }
    image.get_mut(new_names_end as usize..new_next as usize)?.fill(0);

    // Distances modulo 2^32, so that adding one also moves back.
    let (by_names, by) = (new_end.wrapping_sub(old_end), new_next.wrapping_sub(next));
    let moved = |at: u32| match at {
        at if at >= next => at.wrapping_add(by),
        at if at >= old_end => at.wrapping_add(by_names),
        at => at,
    };
    for bytes in image.get_mut(items)?.as_chunks_mut().0 {
        let mut item = Item::decode(bytes);
        item.key_start = moved(item.key_start);
        if item.value.start == changed.value.start && item.kind == VALUE {
            item.value.end = new_end;
        } else if item.value.start >= next {
            item.value.start = moved(item.value.start);
            item.value.end = moved(item.value.end);
        }
        *bytes = item.encode();
    }
    Some(())
}
