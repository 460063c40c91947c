//! A terminal that a command has for itself: taken over, drawn and read, and given back however it ends.

#![expect(
    clippy::disallowed_methods,
    reason = "this is where a screen is drawn, of which each cell is looked at"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossterm::event::{self, Event, KeyEvent};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};
use ratatui::{Frame, Terminal};
use report::paint::{Paint, Tone};
use report::text::{Charset, in_ascii, is_shown, visible};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use unicode_width::UnicodeWidthChar;

/// The narrowest screen on which what is folded is indented.
const WIDE: usize = 24;

/// Whether a view goes on after a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ViewControl {
    /// It does.
    Stay,
    /// The user is done.
    Leave,
}

/// What has the terminal for itself.
pub(crate) trait Show {
    /// Draws all of it, whatever the size.
    fn draw(&mut self, frame: &mut Frame<'_>);

    /// Does what a key means.
    fn press(&mut self, key: KeyEvent) -> ViewControl;

    /// Returns how often [`Show::tick`] is to be called while no key is pressed; never if there is nothing to do.
    fn pace(&self) -> Option<Duration> {
        None
    }

    /// Does what is to be done without a key.
    fn tick(&mut self) {}
}

/// A terminal that is ours until this goes.
pub struct Screen {
    /// Whoever holds it writes to the terminal.
    writing: Arc<Mutex<()>>,
    /// The characters that the terminal shows.
    charset: Charset,
}

impl Screen {
    /// Takes the terminal: keys one by one, and a screen of its own beside what stands there.
    ///
    /// # Errors
    ///
    /// Nobody can type, or the terminal is gone; it is as it was.
    pub fn enter(charset: Charset) -> io::Result<Screen> {
        enable_raw_mode()?;
        let screen = Screen { writing: Arc::default(), charset };
        screen.leave_on_signals()?;
        screen.leave_on_hangup()?;
        // So that what a panic says stays on the screen.
        sys::sheltered::before_panic_message(leave);
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }

    /// Shows a view until the user leaves.
    ///
    /// # Errors
    ///
    /// The terminal cannot be read or written any more; it is given back as far as it is there.
    pub(crate) fn show(self, view: &mut dyn Show) -> io::Result<()> {
        let shown = self.run(view);
        if shown.is_err() && is_gone() {
            // Whether this error or the signal is noticed first, the end is the same.
            end(&self.writing, hung_up());
        }
        shown
    }

    fn run(&self, view: &mut dyn Show) -> io::Result<()> {
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // Where it cannot show the cursor, its end says so on stderr, and panics where that is gone, too; `leave` does it.
        let mut terminal = ManuallyDrop::new(terminal);
        loop {
            {
                let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
                terminal.draw(|frame| {
                    view.draw(frame);
                    keep_to(self.charset, frame.buffer_mut());
                })?;
            }
            let is_key = match view.pace() {
                Some(pace) => event::poll(pace)?,
                None => true,
            };
            // A new size is an event, too: it is drawn at once.
            if is_key
                && let Event::Key(key) = event::read()?
                && view.press(key) == ViewControl::Leave
            {
                return Ok(());
            }
            view.tick();
        }
    }

    /// Lets SIGINT, SIGTERM and SIGHUP give the terminal back before they end us.
    fn leave_on_signals(&self) -> io::Result<()> {
        let writing = Arc::clone(&self.writing);
        let (ready, wait) = mpsc::channel::<()>();
        sys::thread::spawn("signals", move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
            let status = runtime.block_on(async {
                let kinds =
                    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
                let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = kinds.map(signal)
                else {
                    return None;
                };
                // The other end waits for this alone; if it is gone, so is the program.
                let _ = ready.send(());
                let kind = tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                    _ = hangup.recv() => SignalKind::hangup(),
                };
                Some(128 + kind.as_raw_value())
            });
            let Some(status) = status else { return };
            end(&writing, status);
        })?;
        // An error says that nothing listens: signals then end us as always.
        let _ = wait.recv();
        Ok(())
    }

    /// Ends us when the terminal goes away. One that is not our session's sends no SIGHUP, and crossterm reads on at its end for ever.
    fn leave_on_hangup(&self) -> io::Result<()> {
        let writing = Arc::clone(&self.writing);
        sys::thread::spawn("hang-up", move || {
            let stdout = io::stdout();
            // Whatever is asked for, poll(2) tells of hang-ups.
            let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
            loop {
                match poll(&mut ends, None) {
                    Ok(_) => end(&writing, hung_up()),
                    Err(Errno::INTR) => (),
                    Err(_) => return,
                }
            }
        })?;
        Ok(())
    }
}

/// Returns the exit status of a program whose terminal has gone away.
fn hung_up() -> i32 {
    128 + SignalKind::hangup().as_raw_value()
}

/// Returns whether the terminal has gone away.
fn is_gone() -> bool {
    is_so(PollFlags::empty(), 0)
}

/// Returns whether the terminal takes what is written. One that stands still, as after Ctrl-S, does not.
fn takes() -> bool {
    is_so(PollFlags::OUT, 1)
}

/// Waits until something is so of the terminal, or it has gone away.
fn is_so(flags: PollFlags, seconds: i64) -> bool {
    let stdout = io::stdout();
    let mut ends = [PollFd::new(&stdout, flags)];
    poll(&mut ends, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Gives the terminal back and ends the program.
fn end(writing: &Mutex<()>, status: i32) -> ! {
    if !takes() {
        // Whoever draws may wait for ever, and so would what gives the screen back; the keys at least are as they were.
        let _ = disable_raw_mode();
        std::process::exit(status);
    }
    // Nothing may be drawn behind what gives the screen back, so this is never let go.
    let _writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
    leave();
    std::process::exit(status)
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After a panic it has been given back; a second time would put the cursor onto what the panic said.
        if !std::thread::panicking() {
            leave();
        }
    }
}

/// Gives the terminal back. It may be gone; then nobody is left who needs it.
fn leave() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// Returns how a tone looks; without colours, weight alone tells.
pub(crate) fn style(tone: Tone, paint: Paint) -> Style {
    let style = match tone {
        Tone::Plain | Tone::Good | Tone::Warn => Style::new(),
        Tone::Strong | Tone::Bad => Style::new().add_modifier(Modifier::BOLD),
        Tone::Dim => Style::new().add_modifier(Modifier::DIM),
    };
    match (paint.is_coloured(), tone) {
        (true, Tone::Good) => style.fg(Color::Green),
        (true, Tone::Warn) => style.fg(Color::Yellow),
        (true, Tone::Bad) => style.fg(Color::Red),
        _ => style,
    }
}

/// Leaves in each cell what the reader's terminal shows in one place: the last net, also for text of others.
fn keep_to(charset: Charset, buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        let symbol = cell.symbol();
        if symbol.chars().all(|letter| is_shown(letter, charset)) {
            continue;
        }
        let sign = match symbol {
            "→" | "⇢" => ">",
            symbol => symbol
                .chars()
                .next()
                .and_then(in_ascii)
                .and_then(|sign| sign.get(..1))
                .unwrap_or("?"),
        };
        cell.set_symbol(sign);
    }
}

/// Returns the first of `all` rows that is shown if the first one was `top`: the row at `cursor` is on the `page` rows.
pub(crate) fn first_shown(top: usize, cursor: usize, all: usize, page: usize) -> usize {
    top.max((cursor + 1).saturating_sub(page)).min(cursor).min(all.saturating_sub(page))
}

/// Breaks a line where the screen ends: a name has no other place to break at.
pub(crate) fn fold(line: &str, width: usize) -> Vec<String> {
    let indent = if width >= WIDE { "    " } else { "" };
    let mut parts = vec![String::new()];
    let mut column = 0;
    for letter in line.chars() {
        let wide = letter.width().unwrap_or(0);
        if column > indent.len() && column + wide > width {
            parts.push(indent.to_owned());
            column = indent.len();
        }
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
        column += wide;
    }
    parts
}

/// Returns text of others as a screen may show it.
pub(crate) fn harmless(text: &str, charset: Charset) -> String {
    visible(text, charset).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;

    #[test]
    fn no_cell_holds_what_the_terminal_does_not_show() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(0, 0, "a→b…é日│●", Style::new());
        buffer.content[10].set_symbol("\x1b");
        keep_to(Charset::Ascii, &mut buffer);
        let text: String = buffer.content.iter().map(|cell| cell.symbol()).collect();
        assert_eq!(text, "a>b.?? |* ? ");
        let mut buffer = Buffer::empty(Rect::new(0, 0, 3, 1));
        buffer.set_string(0, 0, "日\u{202e}", Style::new());
        keep_to(Charset::Unicode, &mut buffer);
        assert!(buffer.content.iter().all(|cell| !cell.symbol().contains('\u{202e}')));
    }
}
