//! The order of names that people expect: by the language's letters, and numbers in them by value.

mod plain;

use std::cmp::Ordering;

use icu_collator::options::{CollatorOptions, Strength};
use icu_collator::preferences::CollationNumericOrdering;
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
use icu_locale_core::Locale;

use plain::Plain;

/// How digits in names are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// A run of digits is a number: `page 9` comes before `page 10`.
    ByValue,
    /// A digit is a character like others: `page 10` comes before `page 9`.
    AsText,
}

/// A total order of names, which are bytes.
///
/// In a language it is the order of the Unicode collation algorithm with the tables of CLDR for that language, as ICU computes it; bytes that are not
/// UTF-8 count as U+FFFD, which comes after every letter. Names that are equal in it (`a1` and `a01`) follow in the order of their bytes, so that only
/// equal names are equal. In the locale `C` it is the order of the bytes alone.
///
/// Names of ASCII characters, which are nearly all, are compared and coded by tables of our own that are computed from ICU's order when a collation is
/// made; everything else is left to ICU. Tests hold both to the same order.
#[derive(Debug)]
pub struct Collation {
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    Bytes,
    Language(Box<Language>),
}

#[derive(Debug)]
struct Language {
    plain: Plain,
    /// Tells different letters apart, and nothing else.
    letters: CollatorBorrowed<'static>,
    /// Tells accents and case apart too.
    full: CollatorBorrowed<'static>,
}

impl Collation {
    /// Makes the order of a locale named as in `LC_COLLATE`: `de_DE.UTF-8`, `sv`, `C`, or as in BCP 47: `de-u-co-phonebk`.
    ///
    /// `C`, `POSIX`, with or without a character set, and nothing are the order of the bytes. A locale that is not known has the order that most
    /// languages share. Takes about a millisecond: make one and keep it.
    #[must_use]
    pub fn new(locale: &str, digits: Digits) -> Collation {
        let language = locale.split(['.', '@']).next().unwrap_or_default();
        if matches!(language, "" | "C" | "POSIX") {
            return Collation { rule: Rule::Bytes };
        }
        let locale = Locale::try_from_str(&language.replace('_', "-")).unwrap_or(Locale::UNKNOWN);
        let made =
            Language::new(&locale, digits).or_else(|| Language::new(&Locale::UNKNOWN, digits));
        // Without its tables the library was built without the data that we ask for; bytes are an order too.
        Collation { rule: made.map_or(Rule::Bytes, |language| Rule::Language(Box::new(language))) }
    }

    /// Compares two names. They are equal only if their bytes are.
    #[must_use]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.rule {
            Rule::Bytes => a.cmp(b),
            Rule::Language(language) => language
                .plain
                .compare(a, b)
                .unwrap_or_else(|| language.full.compare_utf8(a, b))
                .then_with(|| a.cmp(b)),
        }
    }

    /// Writes the start of a name's code and returns its length; less than there is room for is the whole code.
    ///
    /// If the codes of two names differ, the names are in the order of the codes; if they are equal, the names have to be compared. No byte of a code is 0.
    pub fn code(&self, name: &[u8], code: &mut [u8]) -> usize {
        match &self.rule {
            Rule::Bytes => {
                let len = name.len().min(code.len());
                code[..len].copy_from_slice(&name[..len]);
                len
            }
            Rule::Language(language) => language.plain.code(name, code).unwrap_or_else(|| {
                // Without room for all of it, as much is written as there is room for: at this strength it comes byte by byte.
                let written = language.letters.write_sort_key_utf8_to(name, code);
                written.unwrap_or(code.len())
            }),
        }
    }
}

impl Language {
    fn new(locale: &Locale, digits: Digits) -> Option<Language> {
        let mut preferences = CollatorPreferences::from(locale);
        preferences.numeric_ordering = Some(match digits {
            Digits::ByValue => CollationNumericOrdering::True,
            Digits::AsText => CollationNumericOrdering::False,
        });
        let with = |strength| {
            let mut options = CollatorOptions::default();
            options.strength = Some(strength);
            Collator::try_new(preferences, options).ok()
        };
        let (letters, full) = (with(Strength::Primary)?, with(Strength::Tertiary)?);
        Some(Language { plain: Plain::new(&letters, &full, digits), letters, full })
    }
}

#[cfg(test)]
mod tests;
