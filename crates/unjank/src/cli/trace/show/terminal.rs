//! The terminal while a report is browsed: taken over, read, and given back however it ends.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use crossterm::event::{self, Event};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use probe::report::paint::Paint;
use probe::trace::report::schema::Report;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::browser::{Browser, Next};
use super::draw::draw;

/// A terminal that is ours until this goes.
pub(super) struct Screen {
    /// Whoever holds it writes to the terminal.
    writing: Arc<Mutex<()>>,
}

impl Screen {
    /// Takes the terminal: keys one by one, and a screen of its own beside what stands there.
    ///
    /// # Errors
    ///
    /// Nobody can type, or the terminal is gone; it is as it was.
    pub(super) fn enter() -> io::Result<Screen> {
        enable_raw_mode()?;
        let screen = Screen { writing: Arc::default() };
        screen.leave_on_signals();
        screen.leave_on_hangup();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // First, so that what the panic says stays on the screen.
            leave();
            before(info);
        }));
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }

    /// Shows a report until the user leaves.
    ///
    /// # Errors
    ///
    /// The terminal cannot be read or written any more; it is given back as far as it is there.
    pub(super) fn browse(self, report: &Report, paint: Paint) -> io::Result<()> {
        let shown = self.show(report, paint);
        if shown.is_err() && is_gone() {
            // Whether this error or the signal is noticed first, the end is the same.
            end(&self.writing, hung_up());
        }
        shown
    }

    fn show(&self, report: &Report, paint: Paint) -> io::Result<()> {
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // Where it cannot show the cursor, its end says so on stderr, and panics where that is gone, too; `leave` does it.
        let mut terminal = ManuallyDrop::new(terminal);
        let mut browser = Browser::new(report, paint);
        loop {
            {
                let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
                terminal.draw(|frame| draw(&mut browser, frame))?;
            }
            // A new size is an event, too: it is drawn at once.
            if let Event::Key(key) = event::read()?
                && browser.press(key) == Next::Leave
            {
                return Ok(());
            }
        }
    }

    /// Lets SIGINT, SIGTERM and SIGHUP give the terminal back before they end us.
    fn leave_on_signals(&self) {
        let writing = Arc::clone(&self.writing);
        let (ready, wait) = mpsc::channel::<()>();
        std::thread::spawn(move || {
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
        });
        // An error says that nothing listens: signals then end us as always.
        let _ = wait.recv();
    }

    /// Ends us when the terminal goes away. One that is not our session's sends no SIGHUP, and crossterm reads on at its end for ever.
    fn leave_on_hangup(&self) {
        let writing = Arc::clone(&self.writing);
        std::thread::spawn(move || {
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
        });
    }
}

/// Returns the exit status of a program whose terminal has gone away.
fn hung_up() -> i32 {
    128 + SignalKind::hangup().as_raw_value()
}

/// Returns whether the terminal has gone away.
fn is_gone() -> bool {
    let stdout = io::stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// Gives the terminal back and ends the program.
fn end(writing: &Mutex<()>, status: i32) -> ! {
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
