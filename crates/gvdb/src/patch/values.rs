//! Giving a key that is there another value: the table, the names and their places stay as they are.

use super::super::layout::{TABLE, TableItem, VALUE};
use super::super::read::GvdbTable;
use super::super::stamp;
use super::data_sum::{DataSum, Replaced};
use super::place::{Key, Next, items_at};
use super::sections::Sections;

/// Gives `key` another value, and the stamp its sum. Returns that of the names and values, which was `data_sum`.
pub(super) fn set(
    image: &mut Vec<u8>,
    key: &Key,
    value: &[u8],
    data_sum: DataSum,
) -> Option<DataSum> {
    let Sections { sums_at, data_at, lists_at, .. } = Sections::of(image)?;
    // The stamp is in front of all values, so this place stays.
    let sum_at = sums_at + key.index as usize * 4;
    let old_len = image.len();
    let changed = key.item.value.start as usize..key.next.at as usize;
    let replaced = Replaced::new(image.get(changed.clone())?);
    let after_len = lists_at.checked_sub(changed.end)?;
    if value.len() != key.item.value.len() {
        make_room(image, key, value.len())?;
    }
    let start = key.item.value.start as usize;
    image.get_mut(start..)?.get_mut(..value.len())?.copy_from_slice(value);
    let sum = stamp::value_sum(key.item.hash, value);
    *image.get_mut(sum_at..)?.first_chunk_mut()? = sum.to_ne_bytes();

    let before = image.get(data_at..start)?;
    // What is behind the changed part is as long as before.
    let new_end = (image.len() + changed.end).checked_sub(old_len)?;
    let (new, behind) = image.get(start..)?.split_at_checked(new_end.checked_sub(start)?)?;
    Some(data_sum.replace(before, replaced, new, behind.get(..after_len)?))
}

/// Moves what is behind the value of `changed`, which becomes `len` bytes long.
///
/// Behind it are names, which follow each other without a gap, then the next value or the first list at its alignment.
/// From there on everything keeps its distances.
fn make_room(image: &mut Vec<u8>, changed: &Key, len: usize) -> Option<()> {
    let root = GvdbTable::open(image).ok()?;
    let items = items_at(root)..root.span.end as usize;
    let old_end = changed.item.value.end;
    let Next { names_end, at: next, align, .. } = changed.next;
    let new_end = u32::try_from(len).ok()?.checked_add(changed.item.value.start)?;
    let new_names_end = new_end.checked_add(names_end.checked_sub(old_end)?)?;
    let new_next = new_names_end.checked_next_multiple_of(align)?;
    let tail_len = image.len().checked_sub(next as usize)?;
    let new_len = new_next as usize + tail_len;
    u32::try_from(new_len).ok()?;

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
    let changed_name = changed.item.key_start;
    for bytes in image.get_mut(items)?.as_chunks_mut().0 {
        let mut item = TableItem::decode(bytes);
        if item.key_start <= changed_name && item.kind == VALUE {
            if item.key_start == changed_name {
                item.value.end = new_end;
                *bytes = item.encode();
            }
            continue;
        }
        if item.kind != TABLE {
            item.value.start = item.value.start.wrapping_add(by);
            item.value.end = item.value.end.wrapping_add(by);
        }
        if item.key_start >= next {
            item.key_start = item.key_start.wrapping_add(by);
        } else if item.key_start >= old_end {
            item.key_start = item.key_start.wrapping_add(by_names);
        }
        *bytes = item.encode();
    }
    Some(())
}
