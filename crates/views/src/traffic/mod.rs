//! D-Bus traffic as it comes.

mod browser;
mod draw;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crossterm::event::KeyEvent;
use ratatui::Frame;

pub use self::browser::TrafficBrowser;
use crate::screen::{Show, ViewControl};

impl Show for TrafficBrowser {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        draw::draw(self, frame);
    }

    fn press(&mut self, key: KeyEvent) -> ViewControl {
        TrafficBrowser::press(self, key)
    }

    fn pace(&self) -> Option<Duration> {
        TrafficBrowser::pace(self)
    }

    fn tick(&mut self) {
        self.take_traffic();
    }
}
