//! Keys that mean the same in every view of a list: moving, turning to another list, typing a line.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What letters are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Letters {
    /// Keys with a meaning each.
    Keys,
    /// Text that is being typed.
    Text,
}

/// What was pressed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Pressed {
    /// Ctrl-C: away from here.
    Leave,
    /// Ctrl-U: the line that is being typed is emptied.
    Empty,
    /// A key.
    Key(KeyCode),
}

/// Returns what was pressed, if it means anything.
pub(crate) fn pressed(key: KeyEvent) -> Option<Pressed> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => Some(Pressed::Leave),
        KeyCode::Char('u') if control => Some(Pressed::Empty),
        // Other letters with Ctrl or Alt are not the letters.
        KeyCode::Char(_) if control || key.modifiers.contains(KeyModifiers::ALT) => None,
        code => Some(Pressed::Key(code)),
    }
}

/// Returns by how many rows a key moves where `page` rows are shown, if it is one that moves.
pub(crate) fn distance(code: KeyCode, page: usize, letters: Letters) -> Option<isize> {
    let page = isize::try_from(page.max(1)).unwrap_or(isize::MAX);
    match code {
        KeyCode::Up => Some(-1),
        KeyCode::Down => Some(1),
        KeyCode::PageUp => Some(-page),
        KeyCode::PageDown => Some(page),
        KeyCode::Home => Some(isize::MIN),
        KeyCode::End => Some(isize::MAX),
        KeyCode::Char('k') if letters == Letters::Keys => Some(-1),
        KeyCode::Char('j') if letters == Letters::Keys => Some(1),
        KeyCode::Char(' ') if letters == Letters::Keys => Some(page),
        _ => None,
    }
}

/// Returns to which of `count` tabs a key turns from the tab `now`, if it is one that turns.
pub(crate) fn tab(code: KeyCode, now: usize, count: usize) -> Option<usize> {
    let count = count.max(1);
    match code {
        KeyCode::Tab | KeyCode::Right => Some((now + 1) % count),
        KeyCode::BackTab | KeyCode::Left => Some((now + count - 1) % count),
        KeyCode::Char(digit) => {
            let digit = usize::try_from(digit.to_digit(10)?).ok()?;
            digit.checked_sub(1).filter(|at| *at < count)
        }
        _ => None,
    }
}

/// Returns what a line is after a key, if the key is one that changes lines.
pub(crate) fn typed(line: &str, code: KeyCode) -> Option<String> {
    match code {
        KeyCode::Backspace => {
            let mut line = line.to_owned();
            line.pop();
            Some(line)
        }
        KeyCode::Char(letter) => Some(format!("{line}{letter}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_move_unless_they_are_typed() {
        assert_eq!(distance(KeyCode::Char('j'), 9, Letters::Keys), Some(1));
        assert_eq!(distance(KeyCode::Char('j'), 9, Letters::Text), None);
        assert_eq!(distance(KeyCode::PageUp, 9, Letters::Text), Some(-9));
        assert_eq!(distance(KeyCode::PageDown, 0, Letters::Text), Some(1));
    }

    #[test]
    fn tabs_go_round_and_have_numbers() {
        assert_eq!(tab(KeyCode::Tab, 2, 3), Some(0));
        assert_eq!(tab(KeyCode::BackTab, 0, 3), Some(2));
        assert_eq!(tab(KeyCode::Char('3'), 0, 3), Some(2));
        for none in ['0', '4', 'x'] {
            assert_eq!(tab(KeyCode::Char(none), 0, 3), None);
        }
    }

    #[test]
    fn a_letter_with_control_is_no_letter() {
        let key = |code, modifiers| pressed(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Pressed::Leave));
        assert_eq!(key(KeyCode::Char('u'), KeyModifiers::CONTROL), Some(Pressed::Empty));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), None);
        let x = Some(Pressed::Key(KeyCode::Char('x')));
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::NONE), x);
        assert_eq!(typed("ä", KeyCode::Backspace).as_deref(), Some(""));
    }
}
