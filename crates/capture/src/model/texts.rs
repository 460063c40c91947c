//! Texts kept once: a message holds numbers, and names are compared as numbers.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The name of the bus itself.
pub const DRIVER: &str = "org.freedesktop.DBus";

/// A text that is kept; [`Text::NONE`] stands for the lack of one.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Text(u32);

impl Text {
    /// No text; written as the empty one.
    pub const NONE: Text = Text(0);
    /// The name of the bus itself, which every capture has.
    pub const BUS: Text = Text(1);

    /// Returns whether there is a text.
    #[must_use]
    pub fn is_some(self) -> bool {
        self != Text::NONE
    }

    /// Returns its number: small ones, without gaps, from 0 for [`Text::NONE`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All texts of a capture.
#[derive(Debug)]
pub struct Texts {
    all: String,
    /// Where each text ends; it begins where the one before it ends.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    /// Keyed anew in each process: who sends messages cannot choose names that collide.
    hasher: RandomState,
}

impl Default for Texts {
    fn default() -> Texts {
        let mut texts = Texts {
            all: String::new(),
            ends: vec![0],
            numbers: HashTable::new(),
            hasher: RandomState::default(),
        };
        texts.keep(DRIVER);
        texts
    }
}

impl Texts {
    /// Keeps a text; the empty one is [`Text::NONE`].
    pub fn keep(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Text::NONE;
        }
        let hash = self.hasher.hash_one(text);
        let (all, ends) = (&mut self.all, &mut self.ends);
        if let Some(number) = self.numbers.find(hash, |at| at_of(all, ends, *at) == text) {
            return Text(*number);
        }
        // Four thousand million distinct texts do not fit into memory; the last number is shared if they ever do.
        let number = u32::try_from(ends.len()).unwrap_or(u32::MAX);
        all.push_str(text);
        ends.push(all.len());
        let hasher = &self.hasher;
        self.numbers.insert_unique(hash, number, |at| hasher.hash_one(at_of(all, ends, *at)));
        Text(number)
    }

    /// Keeps a text if there is one.
    pub(crate) fn keep_some(&mut self, text: Option<&str>) -> Text {
        text.map_or(Text::NONE, |text| self.keep(text))
    }

    /// Returns the number of a text that is kept already.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Text> {
        if text.is_empty() {
            return Some(Text::NONE);
        }
        let hash = self.hasher.hash_one(text);
        self.numbers.find(hash, |at| at_of(&self.all, &self.ends, *at) == text).map(|at| Text(*at))
    }

    /// Returns a text.
    #[must_use]
    pub fn get(&self, text: Text) -> &str {
        at_of(&self.all, &self.ends, text.0)
    }

    /// Returns how many there are, with the empty one and the name of the bus.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is none but those that every capture has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.len() == 2
    }

    /// Returns all texts in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|at| at_of(&self.all, &self.ends, u32::try_from(at).unwrap_or(0)))
    }
}

fn at_of<'a>(all: &'a str, ends: &[usize], at: u32) -> &'a str {
    let at = at as usize;
    let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    let end = ends.get(at).copied().unwrap_or(start);
    all.get(start..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once_and_found_again() {
        let mut texts = Texts::default();
        let names: Vec<String> = (0..5000).map(|at| format!("org.example.Name{at}")).collect();
        let kept: Vec<Text> = names.iter().map(|name| texts.keep(name)).collect();
        let again: Vec<Text> = names.iter().map(|name| texts.keep(name)).collect();
        assert_eq!(kept, again);
        assert_eq!(texts.len(), 5002);
        assert_eq!((texts.keep(DRIVER), texts.get(Text::BUS)), (Text::BUS, DRIVER));
        assert!(kept.iter().zip(&names).all(|(text, name)| texts.get(*text) == name));
        assert_eq!(texts.keep(""), Text::NONE);
        assert_eq!(texts.get(Text::NONE), "");
        assert_eq!(texts.find("org.example.Other"), None);
        assert!(texts.iter().skip(2).eq(names.iter().map(String::as_str)));
    }
}
