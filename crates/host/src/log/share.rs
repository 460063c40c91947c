//! Chooses the records that stay in a full log: each application has a share.

use std::collections::{BTreeMap, HashMap};

use super::record::{self, Owner};

/// Returns which of `records` stay in `room` bytes, oldest first.
///
/// The room is divided among the applications with records, and unused shares go to the others. Of each application
/// the newest records stay. A beginning and its end stay or go together.
pub(super) fn stay(records: &[Vec<u8>], room: u64) -> Vec<bool> {
    let mut owners: HashMap<u64, Owner> = HashMap::new();
    let mut totals: BTreeMap<Owner, u64> = BTreeMap::new();
    let mut owned = Vec::with_capacity(records.len());
    for bytes in records {
        let owner = match record::owner(bytes) {
            // Its beginning is gone, so it is useless.
            Owner::EndOf(id) => owners.get(&id).cloned(),
            owner => {
                owners.extend(record::id(bytes).map(|id| (id, owner.clone())));
                Some(owner)
            }
        };
        if let Some(owner) = &owner {
            *totals.entry(owner.clone()).or_default() += bytes.len() as u64;
        }
        owned.push(owner);
    }
    let mut shares = shares(totals, room);
    let mut stay: Vec<bool> = vec![false; records.len()];
    for (at, owner) in owned.iter().enumerate().rev() {
        let Some(share) = owner.as_ref().and_then(|owner| shares.get_mut(owner)) else { continue };
        let bytes = records.get(at).map_or(0, Vec::len) as u64;
        if *share >= bytes {
            *share -= bytes;
            if let Some(stays) = stay.get_mut(at) {
                *stays = true;
            }
        } else {
            // Older records are dropped, too, however short they are.
            *share = 0;
        }
    }
    stay
}

/// Divides `room` among applications that need these numbers of bytes.
fn shares(needs: BTreeMap<Owner, u64>, mut room: u64) -> BTreeMap<Owner, u64> {
    let mut by_need: Vec<(Owner, u64)> = needs.into_iter().collect();
    by_need.sort_by_key(|(_, need)| *need);
    let mut left = by_need.len() as u64;
    let mut shares = BTreeMap::new();
    for (owner, need) in by_need {
        let share = need.min(room / left);
        room -= share;
        left -= 1;
        shares.insert(owner, share);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::{CommandOutcome, End, LogEntry, LoggedProcess};
    use super::*;
    use crate::command::CommandRequest;
    use std::time::SystemTime;

    fn begin(id: u64, application: &str, outcome: CommandOutcome) -> Vec<u8> {
        let request =
            CommandRequest { arguments: vec![b"x".repeat(100)], ..CommandRequest::default() };
        let entry = LogEntry::asked(SystemTime::UNIX_EPOCH, &request);
        record::beginning(&LogEntry { id, application: application.into(), outcome, ..entry })
    }

    fn ran(id: u64, application: &str) -> [Vec<u8>; 2] {
        let began = CommandOutcome::Began(LoggedProcess { pid: 1, began: 2 });
        [begin(id, application, began), record::end(id, &End::default())]
    }

    #[test]
    fn nobody_pushes_out_what_is_recorded_of_others() {
        let mut records: Vec<Vec<u8>> = Vec::new();
        records.extend((0..5).flat_map(|id| ran(id, "org.quiet.One")));
        records.extend((5..10).flat_map(|id| ran(id, "org.loud.One")));
        let refused = |id| begin(id, "org.loud.One", CommandOutcome::Refused("no".into()));
        records.extend((10..1000).map(refused));
        let room = 20_000;
        let stays = stay(&records, room);
        assert!(stays[..20].iter().all(|stays| *stays), "a flood of refusals pushed others out");
        let kept = |of: &[bool]| of.iter().filter(|stays| **stays).count();
        let bytes: usize =
            records.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(it, _)| it.len()).sum();
        assert!(bytes as u64 <= room && bytes > 19_000, "{bytes}");
        // The newest of the flood.
        let flood = &stays[20..];
        let first = flood.iter().position(|stays| *stays).unwrap();
        assert_eq!(kept(&flood[first..]), flood.len() - first);
    }

    #[test]
    fn an_end_goes_with_its_beginning() {
        let mut records: Vec<Vec<u8>> = (0..100).flat_map(|id| ran(id, "org.a.B")).collect();
        records.insert(0, record::end(7777, &End::default()));
        let stays = stay(&records, 3000);
        assert!(!stays[0]);
        let kept = records.iter().zip(stays).filter(|(_, stays)| *stays).map(|(it, _)| it.clone());
        let entries = record::entries(kept);
        assert!(entries.len() > 3 && entries.last().unwrap().id == 99);
        assert!(entries.iter().all(|entry| matches!(entry.outcome, CommandOutcome::Ended(..))));
    }
}
