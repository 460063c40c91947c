//! The report of a trace.

mod browser;
mod draw;
#[cfg(test)]
mod tests;

use crossterm::event::KeyEvent;
use ratatui::Frame;

pub use self::browser::ReportBrowser;
use crate::screen::{Show, ViewControl};

impl Show for ReportBrowser<'_> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        draw::draw(self, frame);
    }

    fn press(&mut self, key: KeyEvent) -> ViewControl {
        ReportBrowser::press(self, key)
    }
}
