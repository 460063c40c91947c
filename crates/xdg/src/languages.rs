//! The languages of a user, as translated keys of desktop files and plugins spell them.

/// The languages of a user, the preferred one first, each as the keys of metadata spell it (`de_DE`, then `de`).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Languages(Vec<String>);

impl Languages {
    /// Takes a locale as POSIX spells it (`de_DE.UTF-8@euro`); `C` and `POSIX` are no language.
    #[must_use]
    pub fn of_locale(locale: &str) -> Languages {
        let plain = locale.split(['.', '@']).next().unwrap_or_default();
        if matches!(plain, "" | "C" | "POSIX") {
            return Languages::default();
        }
        let modifier = locale.split_once('@').map(|(_, modifier)| modifier);
        let language = plain.split('_').next().unwrap_or(plain);
        // The order of the Desktop Entry Specification; KDE's metadata has no modifier after a country.
        let mut spellings = Vec::new();
        if let Some(modifier) = modifier {
            spellings.push(format!("{plain}@{modifier}"));
        }
        spellings.push(plain.to_owned());
        if let Some(modifier) = modifier {
            spellings.push(format!("{language}@{modifier}"));
        }
        spellings.push(language.to_owned());
        spellings.dedup();
        Languages(spellings)
    }

    /// Returns the spellings, the best first.
    pub fn spellings(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns how good a spelling is, 0 the best; none when the user does not read that language.
    #[must_use]
    pub fn rank(&self, spelling: &str) -> Option<usize> {
        self.0.iter().position(|known| known == spelling)
    }
}
