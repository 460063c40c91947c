//! What the keys do in the browser of a report.

use crossterm::event::{KeyCode, KeyEvent};
use probe::report::paint::Paint;
use probe::trace::report::schema::Report;
use probe::trace::report::view::{List, View};
use ratatui::Frame;

use super::draw::draw;
use crate::cli::keys::{self, Letters, Pressed};
use crate::cli::terminal::{Next, Show};

/// What is on the screen below the tabs, and so what keys mean.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// A list.
    List,
    /// The list while its filter is typed.
    Filter,
    /// All that is known of one row.
    Details,
}

/// A report as it is being looked at.
pub(super) struct Browser<'a> {
    pub(super) report: &'a Report,
    pub(super) view: View<'a>,
    pub(super) paint: Paint,
    pub(super) mode: Mode,
    /// The first row that is shown.
    pub(super) top: usize,
    /// How many rows fit; drawing finds it out.
    pub(super) page: usize,
    /// The details of the row that was opened.
    pub(super) details: Vec<String>,
    /// The first line of the details that is shown; drawing keeps it inside.
    pub(super) scroll: usize,
}

impl<'a> Browser<'a> {
    /// Begins with the code paths.
    pub(super) fn new(report: &'a Report, paint: Paint) -> Browser<'a> {
        Browser {
            report,
            view: View::new(report),
            paint,
            mode: Mode::List,
            top: 0,
            page: 1,
            details: Vec::new(),
            scroll: 0,
        }
    }

    fn filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::List,
            KeyCode::Esc => {
                self.view.set_filter("");
                self.mode = Mode::List;
            }
            code => match keys::typed(self.view.filter(), code) {
                Some(word) => self.view.set_filter(&word),
                None => self.step(code),
            },
        }
    }

    fn list(&mut self, code: KeyCode) -> Next {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Next::Leave,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => {
                let columns = self.view.list().headings().len();
                self.sort((self.view.sort().0 + 1) % columns);
            }
            KeyCode::Char('S') => self.sort(self.view.sort().0),
            KeyCode::Enter if !self.view.rows().is_empty() => {
                self.details = self.view.details();
                self.scroll = 0;
                self.mode = Mode::Details;
            }
            code => self.step(code),
        }
        Next::Stay
    }

    fn read(&mut self, code: KeyCode) -> Next {
        match code {
            KeyCode::Char('q') => return Next::Leave,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.mode = Mode::List,
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Char('1'..='5') => {
                self.mode = Mode::List;
                self.turn(code);
            }
            code => {
                let by = self.distance(code).unwrap_or(0);
                // No key moves by more than all there is, so that nothing overflows in drawing.
                self.scroll = self.scroll.saturating_add_signed(by);
            }
        }
        Next::Stay
    }

    /// Sorts and goes to what is now first.
    fn sort(&mut self, column: usize) {
        self.view.sort_by(column);
        self.view.step(isize::MIN);
    }

    /// Moves the cursor or turns to another list.
    fn step(&mut self, code: KeyCode) {
        match self.distance(code) {
            Some(by) => self.view.step(by),
            None => self.turn(code),
        }
    }

    /// Returns by how many rows a key moves, if it is one that moves.
    fn distance(&self, code: KeyCode) -> Option<isize> {
        let letters = if self.mode == Mode::Filter { Letters::Text } else { Letters::Keys };
        keys::distance(code, self.page, letters)
    }

    fn turn(&mut self, code: KeyCode) {
        let now = List::ALL.iter().position(|list| *list == self.view.list()).unwrap_or(0);
        let at = keys::tab(code, now, List::ALL.len());
        if let Some(list) = at.and_then(|at| List::ALL.get(at)) {
            self.view.show(*list);
            self.top = 0;
        }
    }
}

impl Show for Browser<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        draw(self, frame);
    }

    fn press(&mut self, key: KeyEvent) -> Next {
        match keys::pressed(key) {
            None => Next::Stay,
            Some(Pressed::Leave) => Next::Leave,
            Some(Pressed::Empty) => {
                if self.mode == Mode::Filter {
                    self.view.set_filter("");
                }
                Next::Stay
            }
            Some(Pressed::Key(code)) => match self.mode {
                Mode::Filter => {
                    self.filter(code);
                    Next::Stay
                }
                Mode::List => self.list(code),
                Mode::Details => self.read(code),
            },
        }
    }
}
