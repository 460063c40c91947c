//! The moment at which a program's window is shown, as a client of the X server sees it.
//!
//! The client asks to be told of windows that appear on the screen, and asks each for the process that it belongs to
//! (`_NET_WM_PID`). It draws nothing and changes nothing.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sys::clock::{Clock, SystemClock};
use trace::report::TraceReport;

/// The most windows whose moments are kept.
const WINDOWS: usize = 1000;
/// The longest answer that is read, in bytes.
const LONGEST: usize = 1 << 20;
/// The longest wait for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(2);

/// A display, and where the user's right to it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XDisplay {
    number: u32,
    authority: Option<PathBuf>,
}

impl XDisplay {
    /// Reads the variables of a program: `DISPLAY` of this machine (`:7.0`), `XAUTHORITY`, and `HOME`.
    #[must_use]
    pub fn from_variables(variable: impl Fn(&str) -> Option<OsString>) -> Option<XDisplay> {
        let display = variable("DISPLAY")?;
        let number = display.to_str()?.strip_prefix(':')?.split('.').next()?.parse().ok()?;
        let usual = || Some(PathBuf::from(variable("HOME")?).join(".Xauthority"));
        let authority = variable("XAUTHORITY").map(PathBuf::from).or_else(usual);
        Some(XDisplay { number, authority })
    }

    fn connect(&self) -> io::Result<UnixStream> {
        let path = format!("/tmp/.X11-unix/X{}", self.number);
        let hidden = SocketAddr::from_abstract_name(&path)?;
        let stream = UnixStream::connect_addr(&hidden).or_else(|_| UnixStream::connect(path))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// Returns the cookie for this display; empty if there is none, as servers without access control allow.
    fn cookie(&self) -> Vec<u8> {
        let file = self.authority.as_ref().and_then(|path| std::fs::read(path).ok());
        cookie(&file.unwrap_or_default(), self.number).unwrap_or_default()
    }
}

/// Finds the last cookie for a display in a file of `xauth`: family, address, number, name and data, each with its length.
fn cookie(file: &[u8], number: u32) -> Option<Vec<u8>> {
    let mut rest = file;
    let mut found = None;
    while rest.len() > 2 {
        rest = &rest[2..];
        let mut field = || {
            let length = usize::from(u16::from_be_bytes(rest.get(..2)?.try_into().ok()?));
            let field = rest.get(2..2 + length)?;
            rest = &rest[2 + length..];
            Some(field)
        };
        let Some([_, display, name, data]) = (|| Some([field()?, field()?, field()?, field()?]))()
        else {
            break;
        };
        let is_display = display.is_empty() || display == number.to_string().as_bytes();
        if is_display && name == b"MIT-MAGIC-COOKIE-1" {
            found = found.or_else(|| Some(data.to_vec()));
        }
    }
    found
}

/// The windows that were shown: the process of each, and when.
type ShownWindows = Arc<Mutex<Vec<(u32, SystemTime)>>>;

/// Watches a display until it is dropped.
#[derive(Debug)]
pub struct WindowWatcher {
    shown: ShownWindows,
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl WindowWatcher {
    /// Begins to watch a display.
    ///
    /// # Errors
    ///
    /// There is no server, or it refuses this user.
    pub fn start(display: &XDisplay) -> io::Result<WindowWatcher> {
        let stream = display.connect()?;
        let mut client = XClient::new(stream.try_clone()?, &display.cookie())?;
        stream.set_read_timeout(None)?;
        let shown = ShownWindows::default();
        let known = Arc::clone(&shown);
        let thread = sys::thread::spawn("windows", move || {
            let clock = SystemClock::start();
            // The server is gone, or nobody watches any more.
            while let Ok((window, at)) = client.next_shown(&clock) {
                let Ok(process) = client.process_of(window) else { break };
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(process) = process.filter(|_| known.len() < WINDOWS) {
                    known.push((process, at));
                }
            }
        })?;
        Ok(WindowWatcher { shown, stream, thread: Some(thread) })
    }

    /// Returns when the first window of a program of the report was shown, in nanoseconds since its recording began; and
    /// forgets all windows.
    #[must_use]
    pub fn shown_in(&self, report: &TraceReport) -> Option<u64> {
        let shown = std::mem::take(&mut *self.shown.lock().unwrap_or_else(PoisonError::into_inner));
        let began = UNIX_EPOCH + Duration::from_millis(report.began_ms);
        let is_ours = |process: u32| report.processes.iter().any(|known| known.id == process);
        let first = shown.into_iter().find(|(process, _)| is_ours(*process));
        let since = first.and_then(|(_, at)| at.duration_since(began).ok())?;
        u64::try_from(since.as_nanos()).ok()
    }
}

impl Drop for WindowWatcher {
    fn drop(&mut self) {
        // The thread waits for the server alone, and the end of the connection wakes it.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A connection to an X server, in this machine's byte order.
struct XClient {
    stream: UnixStream,
    /// `_NET_WM_PID`.
    process_property: u32,
    /// Windows that appeared while an answer was waited for.
    waiting: Vec<(u32, SystemTime)>,
}

/// `CARDINAL`.
const CARDINAL: u32 = 6;
/// `MapNotify` and `ReparentNotify`.
const SHOWN: [u8; 2] = [19, 21];

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn half(bytes: &[u8], at: usize) -> io::Result<u16> {
    let part = bytes.get(at..at + 2).and_then(|part| part.try_into().ok());
    part.map(u16::from_ne_bytes).ok_or_else(|| bad("the answer is short"))
}

fn word(bytes: &[u8], at: usize) -> io::Result<u32> {
    let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
    part.map(u32::from_ne_bytes).ok_or_else(|| bad("the answer is short"))
}

/// Adds bytes up to the next multiple of four.
fn pad(request: &mut Vec<u8>) {
    request.resize(request.len().next_multiple_of(4), 0);
}

impl XClient {
    fn new(mut stream: UnixStream, cookie: &[u8]) -> io::Result<XClient> {
        let name: &[u8] = if cookie.is_empty() { b"" } else { b"MIT-MAGIC-COOKIE-1" };
        let order = if cfg!(target_endian = "little") { b'l' } else { b'B' };
        let mut hello = vec![order, 0];
        let lengths = [name.len(), cookie.len()].map(|length| u16::try_from(length).unwrap_or(0));
        for number in [11, 0, lengths[0], lengths[1], 0] {
            hello.extend(number.to_ne_bytes());
        }
        for text in [name, cookie] {
            hello.extend(text);
            pad(&mut hello);
        }
        stream.write_all(&hello)?;
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        let mut setup = vec![0; 4 * usize::from(half(&head, 6)?)];
        stream.read_exact(&mut setup)?;
        if head[0] != 1 {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the X server refuses us"));
        }
        // Behind 32 bytes: the vendor, then the formats, eight bytes each, then the first screen with its root.
        let vendor = usize::from(half(&setup, 16)?).next_multiple_of(4);
        let formats = 8 * usize::from(*setup.get(21).ok_or_else(|| bad("the setup is short"))?);
        let root = word(&setup, 32 + vendor + formats)?;
        let mut client = XClient { stream, process_property: 0, waiting: Vec::new() };
        // ChangeWindowAttributes: the event mask is SubstructureNotify.
        client.send(2, 0, &[root, 0x800, 0x8_0000])?;
        let name = b"_NET_WM_PID";
        let mut intern = vec![u32::try_from(name.len()).unwrap_or(0)];
        let mut text = name.to_vec();
        pad(&mut text);
        intern.extend(text.chunks_exact(4).filter_map(|part| word(part, 0).ok()));
        client.send(16, 0, &intern)?;
        let clock = SystemClock::start();
        client.process_property = word(&client.answer(&clock)?, 8)?;
        Ok(client)
    }

    /// Sends a request of words.
    fn send(&mut self, opcode: u8, detail: u8, words: &[u32]) -> io::Result<()> {
        let mut request = vec![opcode, detail];
        let length = u16::try_from(words.len() + 1).map_err(|_| bad("the request is long"))?;
        request.extend(length.to_ne_bytes());
        words.iter().for_each(|word| request.extend(word.to_ne_bytes()));
        self.stream.write_all(&request)
    }

    /// Reads the next event, error or answer.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut message = vec![0; 32];
        self.stream.read_exact(&mut message)?;
        // An answer, and an event of an extension, say how long they are.
        if matches!(message[0] & 0x7f, 1 | 35) {
            let more = 4 * usize::try_from(word(&message, 4)?).unwrap_or(usize::MAX / 4);
            if more > LONGEST {
                return Err(bad("the answer is long"));
            }
            message.resize(32 + more, 0);
            self.stream.read_exact(&mut message[32..])?;
        }
        Ok(message)
    }

    /// Reads the answer to the last request; an error stands for one without content.
    fn answer(&mut self, clock: &dyn Clock) -> io::Result<Vec<u8>> {
        loop {
            let message = self.read()?;
            match message[0] {
                0 => return Ok(vec![0; 32]),
                1 => return Ok(message),
                _ => self.waiting.extend(shown(&message)?.map(|window| (window, clock.now()))),
            }
        }
    }

    /// Waits for the next window that appears, and returns when it did.
    fn next_shown(&mut self, clock: &dyn Clock) -> io::Result<(u32, SystemTime)> {
        if !self.waiting.is_empty() {
            return Ok(self.waiting.remove(0));
        }
        loop {
            let message = self.read()?;
            if let Some(window) = shown(&message)? {
                return Ok((window, clock.now()));
            }
        }
    }

    /// Asks for the process of a window; none if it does not say.
    fn process_of(&mut self, window: u32) -> io::Result<Option<u32>> {
        self.send(20, 0, &[window, self.process_property, CARDINAL, 0, 1])?;
        let clock = SystemClock::start();
        let answer = self.answer(&clock)?;
        // A format of 32 bits, and one item.
        let has_value = answer[1] == 32 && word(&answer, 16)? == 1;
        if has_value { word(&answer, 32).map(Some) } else { Ok(None) }
    }
}

/// Returns the window that a message says has appeared; none of menus and tooltips, which managers leave alone.
fn shown(message: &[u8]) -> io::Result<Option<u32>> {
    let kind = message[0] & 0x7f;
    let is_left_alone = message[if kind == SHOWN[0] { 12 } else { 20 }] != 0;
    if !SHOWN.contains(&kind) || is_left_alone {
        return Ok(None);
    }
    word(message, 8).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> Option<XDisplay> {
        XDisplay::from_variables(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_display_of_this_machine_is_watched_and_no_other() {
        let display = variables(&[("DISPLAY", ":7.0"), ("HOME", "/home/ana")]).unwrap();
        assert_eq!(display.number, 7);
        assert_eq!(display.authority, Some("/home/ana/.Xauthority".into()));
        for other in ["", "other:0", ":x", "unix:0"] {
            assert_eq!(variables(&[("DISPLAY", other)]), None, "{other}");
        }
    }

    #[test]
    fn a_cookie_is_that_of_the_display_and_damage_is_none() {
        let entry = |display: &str, name: &str, data: &[u8]| {
            let mut entry = vec![1, 0];
            for field in [b"host", display.as_bytes(), name.as_bytes(), data] {
                entry.extend(u16::try_from(field.len()).unwrap().to_be_bytes());
                entry.extend(field);
            }
            entry
        };
        let file = [
            entry("3", "MIT-MAGIC-COOKIE-1", b"three"),
            entry("7", "XDM-AUTHORIZATION-1", b"other"),
            entry("7", "MIT-MAGIC-COOKIE-1", b"seven"),
        ]
        .concat();
        assert_eq!(cookie(&file, 7).unwrap(), b"seven");
        assert_eq!(cookie(&file, 8), None);
        for length in 0..file.len() {
            let _ = cookie(&file[..length], 7);
        }
    }

    /// A server that answers what the client asks, and shows a menu, a window of process 4711 and one of nobody.
    fn serve(mut stream: UnixStream, damage: Option<usize>) -> io::Result<()> {
        let mut hello = [0; 12];
        stream.read_exact(&mut hello)?;
        let mut setup = vec![0; 40 + 8 + 40];
        setup[16..18].copy_from_slice(&5_u16.to_ne_bytes());
        setup[21] = 1;
        setup[48..52].copy_from_slice(&99_u32.to_ne_bytes());
        let mut answer = vec![1, 0, 11, 0, 0, 0];
        answer.extend(u16::try_from(setup.len() / 4).unwrap().to_ne_bytes());
        answer.extend(setup);
        let mut intern = [0; 32];
        intern[0] = 1;
        intern[8..12].copy_from_slice(&300_u32.to_ne_bytes());
        answer.extend(intern);
        let shows = |window: u32, is_left_alone: u8| {
            let mut event = [0; 32];
            event[0] = 19;
            event[8..12].copy_from_slice(&window.to_ne_bytes());
            event[12] = is_left_alone;
            event
        };
        [shows(1, 1), shows(2, 0), shows(3, 0)].iter().for_each(|event| answer.extend(event));
        if let Some(length) = damage {
            answer.truncate(length);
            return stream.write_all(&answer);
        }
        stream.write_all(&answer)?;
        let mut requests = [0; 16 + 20];
        stream.read_exact(&mut requests)?;
        assert_eq!(requests[4..8], 99_u32.to_ne_bytes(), "the root is asked for its windows");
        for process in [Some(4711_u32), None] {
            let mut request = [0; 24];
            stream.read_exact(&mut request)?;
            assert_eq!((request[0], &request[8..12]), (20, &300_u32.to_ne_bytes()[..]));
            let mut property = vec![0; 32];
            property[0] = 1;
            if let Some(process) = process {
                property[1] = 32;
                property[4] = 1;
                property[16] = 1;
                property.extend(process.to_ne_bytes());
            }
            stream.write_all(&property)?;
        }
        Ok(())
    }

    #[test]
    fn a_window_is_known_by_its_process_and_a_menu_is_none() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = sys::thread::spawn("server", move || serve(theirs, None)).unwrap();
        let clock = SystemClock::start();
        let mut client = XClient::new(ours, b"").unwrap();
        let mut found = Vec::new();
        while let Ok((window, _)) = client.next_shown(&clock) {
            found.push((window, client.process_of(window).unwrap()));
        }
        assert_eq!(found, [(2, Some(4711)), (3, None)]);
        server.join().unwrap().unwrap();
    }

    #[test]
    fn a_server_that_breaks_off_or_refuses_is_an_error() {
        for length in 0..8 + 88 + 32 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let server = sys::thread::spawn("server", move || serve(theirs, Some(length))).unwrap();
            assert!(XClient::new(ours, b"").is_err(), "{length} bytes");
            let _ = server.join();
        }
        let display = XDisplay { number: u32::MAX, authority: None };
        assert!(WindowWatcher::start(&display).is_err());
    }
}
