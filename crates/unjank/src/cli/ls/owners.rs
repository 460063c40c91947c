//! Names of users and groups, each asked for once.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::size::{count_digits, digits, right, spaces};

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
    /// The file, and what `getent` calls it; nothing if numbers are wanted.
    source: Option<(&'static Path, &'static str)>,
    /// What the file has; nothing until it is needed.
    file: Option<HashMap<u32, Vec<u8>>>,
    known: HashMap<u32, Option<Shown>>,
    /// The last one that was asked for: mostly the next one too.
    last: Option<u32>,
}

impl Owners {
    /// Finds names where the system keeps them.
    pub(super) fn by_name() -> Owners {
        Owners {
            users: Names::of(Some((Path::new("/etc/passwd"), "passwd"))),
            groups: Names::of(Some((Path::new("/etc/group"), "group"))),
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
    fn of(source: Option<(&'static Path, &'static str)>) -> Names {
        Names { source, file: None, known: HashMap::new(), last: None }
    }

    fn find(&mut self, number: u32) -> Owner<'_> {
        let Some((path, database)) = self.source else { return Owner { number, name: None } };
        if self.last != Some(number) && !self.known.contains_key(&number) {
            let file = self.file.get_or_insert_with(|| read(path));
            let name = file.remove(&number).or_else(|| ask(database, number));
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

/// Reads `/etc/passwd` or `/etc/group`; the first line with a number counts.
fn read(path: &Path) -> HashMap<u32, Vec<u8>> {
    let mut names = HashMap::new();
    // Without the file there are numbers.
    for line in std::fs::read(path).unwrap_or_default().split(|byte| *byte == b'\n') {
        if let Some((number, name)) = entry(line) {
            names.entry(number).or_insert_with(|| name.to_vec());
        }
    }
    names
}

/// Splits a line: `name:password:number:…`.
fn entry(line: &[u8]) -> Option<(u32, &[u8])> {
    let mut fields = line.split(|byte| *byte == b':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let number = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
    Some((number, name))
}

/// Asks the other places where the system has names, if it has any: a directory service, for example.
fn ask(database: &str, number: u32) -> Option<Vec<u8>> {
    let switch = std::fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    let others = |line: &str| {
        line.strip_prefix(database)
            .and_then(|rest| rest.trim_start().strip_prefix(':'))
            .is_some_and(|places| {
                places.split_whitespace().any(|place| !matches!(place, "files" | "compat"))
            })
    };
    if !switch.lines().any(others) {
        return None;
    }
    let mut key = Vec::new();
    digits(number, &mut key);
    let key = String::from_utf8(key).ok()?;
    let output =
        Command::new("getent").args([database, &key]).stderr(Stdio::null()).output().ok()?;
    let line = output.stdout.split(|byte| *byte == b'\n').next()?;
    entry(line).filter(|(found, _)| *found == number).map(|(_, name)| name.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_name_and_a_number() {
        assert_eq!(entry(b"root:x:0:0:root:/root:/bin/sh"), Some((0, &b"root"[..])));
        for wrong in [&b""[..], b"root", b"root:x", b"root:x:y:", b":x:1:", b"a:x:99999999999:"] {
            assert_eq!(entry(wrong), None);
        }
    }

    #[test]
    fn the_first_user_has_a_name_and_an_unknown_one_a_number() {
        let mut owners = Owners::by_name();
        let mut out = Vec::new();
        owners.user(0).write(true, 6, &mut out);
        owners.user(3_999_999_999).write(true, 12, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "root     3999999999 ");
    }
}
