//! What the keys do in the browser of a report.

use crossterm::event::{KeyCode, KeyEvent};
use report::paint::Paint;
use trace::report::schema::TraceReport;
use trace::report::view::{BrowserList, ReportView};

use crate::keys::{self, Letters, Pressed};
use crate::screen::ViewControl;

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
pub struct ReportBrowser<'a> {
    pub(super) report: &'a TraceReport,
    pub(super) view: ReportView<'a>,
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

impl<'a> ReportBrowser<'a> {
    /// Begins with the code paths.
    pub fn new(report: &'a TraceReport, paint: Paint) -> ReportBrowser<'a> {
        ReportBrowser {
            report,
            view: ReportView::new(report),
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

    fn list(&mut self, code: KeyCode) -> ViewControl {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return ViewControl::Leave,
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
        ViewControl::Stay
    }

    fn read(&mut self, code: KeyCode) -> ViewControl {
        match code {
            KeyCode::Char('q') => return ViewControl::Leave,
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
        ViewControl::Stay
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
        let now = BrowserList::ALL.iter().position(|list| *list == self.view.list()).unwrap_or(0);
        let at = keys::tab(code, now, BrowserList::ALL.len());
        if let Some(list) = at.and_then(|at| BrowserList::ALL.get(at)) {
            self.view.show(*list);
            self.top = 0;
        }
    }
}

impl ReportBrowser<'_> {
    /// Does what a key means.
    pub(super) fn press(&mut self, key: KeyEvent) -> ViewControl {
        match keys::pressed(key) {
            None => ViewControl::Stay,
            Some(Pressed::Leave) => ViewControl::Leave,
            Some(Pressed::Empty) => {
                if self.mode == Mode::Filter {
                    self.view.set_filter("");
                }
                ViewControl::Stay
            }
            Some(Pressed::Key(code)) => match self.mode {
                Mode::Filter => {
                    self.filter(code);
                    ViewControl::Stay
                }
                Mode::List => self.list(code),
                Mode::Details => self.read(code),
            },
        }
    }
}
