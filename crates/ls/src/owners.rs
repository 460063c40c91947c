//! Names of users and groups, each asked for once.

use std::collections::HashMap;

use sys::account;

use super::size::{count_digits, right, spaces};

/// Asks the system for the name of a number.
type Ask = fn(u32) -> Option<Vec<u8>>;

/// The names that are known.
#[derive(Debug, Clone)]
pub(super) struct Owners {
    users: Names,
    groups: Names,
}

/// How an owner is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    number: u32,
    name: Option<&'a Shown>,
}

#[derive(Debug, Clone)]
struct Shown {
    name: Vec<u8>,
    width: usize,
}

#[derive(Debug, Clone)]
struct Names {
    /// Asks the system for a name; nothing if numbers are wanted.
    ask: Option<Ask>,
    known: HashMap<u32, Option<Shown>>,
    /// The last one that was asked for: mostly the next one too.
    last: Option<u32>,
}

impl Owners {
    /// Finds names where the system keeps them.
    pub(super) fn by_name() -> Owners {
        Owners {
            users: Names::of(Some(account::user_name)),
            groups: Names::of(Some(account::group_name)),
        }
    }

    /// Shows numbers.
    pub(super) fn by_number() -> Owners {
        Owners { users: Names::of(None), groups: Names::of(None) }
    }

    /// Returns the user with this number.
    pub(super) fn user(&mut self, number: u32) -> Owner<'_> {
        self.users.find(number)
    }

    /// Returns the group with this number.
    pub(super) fn group(&mut self, number: u32) -> Owner<'_> {
        self.groups.find(number)
    }
}

impl<'a> Owner<'a> {
    /// Returns the columns that it takes.
    pub(super) fn width(&self) -> usize {
        self.name.map_or_else(|| count_digits(self.number.into()), |shown| shown.width)
    }

    /// Returns the name, if there is one.
    pub(super) fn name(&self) -> Option<&'a [u8]> {
        self.name.map(|shown| &*shown.name)
    }

    /// Appends it with a space after it, names to the left of `width` columns and numbers to the right.
    pub(super) fn write(&self, known: bool, width: usize, out: &mut Vec<u8>) {
        match self.name {
            _ if !known => {
                out.push(b'?');
                spaces(width.saturating_sub(1), out);
            }
            Some(shown) => {
                out.extend_from_slice(&shown.name);
                spaces(width.saturating_sub(shown.width), out);
            }
            None => right(self.number.into(), width, out),
        }
        out.push(b' ');
    }
}

impl Names {
    fn of(ask: Option<Ask>) -> Names {
        Names { ask, known: HashMap::new(), last: None }
    }

    fn find(&mut self, number: u32) -> Owner<'_> {
        let Some(ask) = self.ask else { return Owner { number, name: None } };
        if self.last != Some(number) && !self.known.contains_key(&number) {
            let name = ask(number);
            let shown = name.map(|name| {
                let width = super::charset::Charset::Utf8.width(&name);
                Shown { name, width }
            });
            self.known.insert(number, shown);
        }
        self.last = Some(number);
        Owner { number, name: self.known.get(&number).and_then(Option::as_ref) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_user_has_a_name_and_an_unknown_one_a_number() {
        let mut owners = Owners::by_name();
        let mut out = Vec::new();
        owners.user(0).write(true, 6, &mut out);
        owners.user(3_999_999_999).write(true, 12, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "root     3999999999 ");
    }
}
