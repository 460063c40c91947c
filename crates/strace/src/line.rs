//! One line of a log of strace, taken apart.

/// The content of a line.
#[derive(Debug, PartialEq)]
pub(super) enum LineContent<'a> {
    /// A call from its name to its result.
    Call {
        /// Its name.
        name: &'a [u8],
        /// The text between its parentheses.
        arguments: &'a [u8],
        /// How the call ended.
        ending: CallResult<'a>,
    },
    /// The beginning of a call during which another thread's line was written.
    Unfinished {
        /// Its name.
        name: &'a [u8],
        /// The arguments so far.
        arguments: &'a [u8],
    },
    /// The rest of such a call.
    Resumed {
        /// Its name.
        name: &'a [u8],
        /// The arguments from there on.
        arguments: &'a [u8],
        /// How the call ended.
        ending: CallResult<'a>,
    },
    /// A signal arrived.
    Signal,
    /// The thread ended with this status.
    Exited(i32),
    /// The thread was ended by the signal with this name.
    Killed(&'a [u8]),
    /// A frame of the stack of the call before.
    Frame(StackFrame<'a>),
    /// Nothing about calls.
    Nothing,
}

/// How a call ended.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CallResult<'a> {
    /// The result as it is written: `3</tmp/x>`, `-1`, `?`, `0x7f…`.
    pub(super) result: &'a [u8],
    /// The error's name.
    pub(super) error: Option<&'a [u8]>,
    /// The time in the call, in nanoseconds.
    pub(super) wall_ns: Option<u64>,
}

/// A frame as strace writes it.
#[derive(Debug, PartialEq)]
pub(super) struct StackFrame<'a> {
    pub(super) module: &'a [u8],
    /// The symbol with its offset, empty if there is none.
    pub(super) symbol: &'a [u8],
    pub(super) address: u64,
}

/// When a line was written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LineTime {
    /// `-ttt`: nanoseconds since 1970.
    Epoch(u64),
    /// `-t` and `-tt`: nanoseconds since midnight.
    OfDay(u64),
    /// `-r`: nanoseconds since the line before.
    Since(u64),
}

/// A line.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    /// The thread, if the log contains it.
    pub(super) thread: Option<u32>,
    /// The time, if the log contains it.
    pub(super) stamp: Option<LineTime>,
    /// What.
    pub(super) says: LineContent<'a>,
}

/// Parses a line; `None` if it has another form.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let line = line.trim_ascii_end();
    if let Some(frame) = line.strip_prefix(b" > ") {
        return Some(Line {
            thread: None,
            stamp: None,
            says: LineContent::Frame(stack_frame(frame)?),
        });
    }
    if line.is_empty() || line.starts_with(b"strace: ") {
        return Some(Line { thread: None, stamp: None, says: LineContent::Nothing });
    }
    let (thread, rest) = thread(line)?;
    let (stamp, rest) = stamp(rest.trim_ascii_start());
    Some(Line { thread, stamp, says: says(rest.trim_ascii_start())? })
}

/// Takes the number of the thread off: `[pid 123] `, `123 `.
fn thread(line: &[u8]) -> Option<(Option<u32>, &[u8])> {
    if let Some(rest) = line.strip_prefix(b"[pid ") {
        let end = rest.iter().position(|byte| *byte == b']')?;
        return Some((Some(number(rest[..end].trim_ascii())?), &rest[end + 1..]));
    }
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match line.get(digits) {
        Some(b' ') if digits > 0 => Some((Some(number(&line[..digits])?), &line[digits..])),
        _ => Some((None, line)),
    }
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Takes the time off, if there is one.
fn stamp(text: &[u8]) -> (Option<LineTime>, &[u8]) {
    let end = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let colons = word.iter().filter(|byte| **byte == b':').count();
    let stamp = match colons {
        2 => of_day(word).map(LineTime::OfDay),
        0 => seconds(word).map(|ns| {
            // Nobody waited a year between two lines.
            if ns > 31_536_000_000_000_000 { LineTime::Epoch(ns) } else { LineTime::Since(ns) }
        }),
        _ => None,
    };
    if stamp.is_none() {
        return (None, text);
    }
    // `-r -tt` writes both: the first is enough.
    let rest = rest.trim_ascii_start();
    match rest.strip_prefix(b"(+") {
        Some(more) => match more.iter().position(|byte| *byte == b')') {
            Some(end) => (stamp, &more[end + 1..]),
            None => (stamp, rest),
        },
        None => (stamp, rest),
    }
}

fn of_day(word: &[u8]) -> Option<u64> {
    let mut parts = word.splitn(3, |byte| *byte == b':');
    let hours: u64 = number(parts.next()?)?;
    let minutes: u64 = number(parts.next()?)?;
    let seconds = seconds(parts.next()?)?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    Some((hours * 3600 + minutes * 60) * 1_000_000_000 + seconds)
}

/// Reads seconds with at most nine digits behind the point, as nanoseconds.
fn seconds(word: &[u8]) -> Option<u64> {
    let mut parts = word.splitn(2, |byte| *byte == b'.');
    let whole = parts.next()?;
    let fraction = parts.next().unwrap_or_default();
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = number(whole)?;
    let mut ns = if fraction.is_empty() { 0 } else { number::<u64>(fraction)? };
    for _ in fraction.len()..9 {
        ns *= 10;
    }
    whole.checked_mul(1_000_000_000)?.checked_add(ns)
}

fn says(text: &[u8]) -> Option<LineContent<'_>> {
    if text.starts_with(b"--- ") {
        return Some(LineContent::Signal);
    }
    if let Some(rest) = text.strip_prefix(b"+++ ") {
        if let Some(rest) = rest.strip_prefix(b"exited with ") {
            return Some(LineContent::Exited(number(until(rest, b' '))?));
        }
        if let Some(rest) = rest.strip_prefix(b"killed by ") {
            return Some(LineContent::Killed(until(rest, b' ')));
        }
        return Some(LineContent::Nothing);
    }
    if let Some(rest) = text.strip_prefix(b"<... ") {
        let end = find(rest, b" resumed>")?;
        let (arguments, ending) = finish(&rest[end + b" resumed>".len()..])?;
        return Some(LineContent::Resumed { name: &rest[..end], arguments, ending });
    }
    let open = text.iter().position(|byte| *byte == b'(')?;
    let name = &text[..open];
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'?';
    if name.is_empty() || !name.iter().all(is_name) {
        return None;
    }
    let rest = &text[open + 1..];
    for unfinished in [&b"<unfinished ...>"[..], b"<detached ...>"] {
        if let Some(arguments) = rest.strip_suffix(unfinished) {
            return Some(LineContent::Unfinished { name, arguments: arguments.trim_ascii_end() });
        }
    }
    let (arguments, ending) = finish(rest)?;
    Some(LineContent::Call { name, arguments, ending })
}

fn until(text: &[u8], end: u8) -> &[u8] {
    text.split(|byte| *byte == end).next().unwrap_or(text)
}

pub(super) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Reads `arguments) = result <time>`.
fn finish(text: &[u8]) -> Option<(&[u8], CallResult<'_>)> {
    let close = closing(text).or_else(|| {
        // A name that looks like syntax: the last `) = ` is the best guess there is.
        text.windows(4).rposition(|window| window == b") = ")
    })?;
    let arguments = &text[..close];
    let arguments = arguments.strip_suffix(b"<unfinished ...>").unwrap_or(arguments);
    let result = text[close + 1..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    Some((arguments, ending(result)))
}

fn ending(mut text: &[u8]) -> CallResult<'_> {
    let mut ending = CallResult::default();
    if let Some(body) = text.strip_suffix(b">") {
        let open = body.iter().rposition(|byte| *byte == b'<');
        if let Some((open, wall)) = open.and_then(|open| Some((open, seconds(&body[open + 1..])?)))
        {
            (ending.wall_ns, text) = (Some(wall), body[..open].trim_ascii_end());
        }
    }
    let end = item_end(text, b' ');
    ending.result = &text[..end];
    let word = until(text[end..].trim_ascii_start(), b' ');
    ending.error = word.starts_with(b"E").then_some(word);
    ending
}

/// Returns the place of the parenthesis that closes the arguments.
fn closing(text: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b')' | b']' | b'}' if depth > 0 => depth -= 1,
            b')' => return Some(at),
            b'(' | b'[' | b'{' => depth += 1,
            _ => (),
        }
        at = skip(text, at);
    }
    None
}

/// Returns the place behind the letter at `at`, or behind the quoted text or path that begins there.
fn skip(text: &[u8], at: usize) -> usize {
    match text[at] {
        b'"' => {
            let mut at = at + 1;
            while at < text.len() && text[at] != b'"' {
                at += if text[at] == b'\\' { 2 } else { 1 };
            }
            at + 1
        }
        // A descriptor's path; strace writes angle brackets inside it as octal, but arrows of sockets as they are.
        b'<' if at > 0 && (text[at - 1].is_ascii_digit() || text[at - 1] == b'D') => {
            let rest = &text[at..];
            let end = (1..rest.len()).find(|at| rest[*at] == b'>' && rest[at - 1] != b'-');
            end.map_or(at + 1, |end| at + end + 1)
        }
        b'/' if text[at..].starts_with(b"/*") => {
            find(&text[at + 2..], b"*/").map_or(at + 1, |end| at + end + 4)
        }
        _ => at + 1,
    }
}

/// Returns the place of `end` outside of quotes, paths and brackets, or the length.
fn item_end(text: &[u8], end: u8) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            byte if byte == end && depth == 0 => return at,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        at = skip(text, at);
    }
    text.len()
}

/// Splits arguments at their commas, into at most so many.
pub(super) fn split(arguments: &[u8], most: usize) -> Vec<&[u8]> {
    let mut items = Vec::new();
    let mut rest = arguments;
    while !rest.is_empty() && items.len() < most {
        let end = item_end(rest, b',');
        items.push(rest[..end.min(rest.len())].trim_ascii());
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    items
}

/// Reads `/usr/lib/libc.so.6(fdatasync+0x10) [0xfece0]`.
fn stack_frame(text: &[u8]) -> Option<StackFrame<'_>> {
    let open = text.windows(4).rposition(|window| window == b" [0x")?;
    let digits = until(&text[open + 4..], b']');
    let address = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let place = &text[..open];
    let paren = place.iter().position(|byte| *byte == b'(');
    let (module, symbol) = match paren {
        Some(at) => (&place[..at], place[at + 1..].strip_suffix(b")").unwrap_or_default()),
        None => (place, &b""[..]),
    };
    Some(StackFrame { module, symbol, address })
}

/// Reads a C string as strace writes it, with its quotes; what follows the quotes is ignored.
pub(super) fn string(text: &[u8]) -> Option<Vec<u8>> {
    let inner = text.strip_prefix(b"\"")?;
    let end = skip(text, 0).saturating_sub(2).min(inner.len());
    Some(unescape(&inner[..end]))
}

/// Undoes the escapes of C.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some(&escape) = text.get(at) else { break };
        at += 1;
        match escape {
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'v' => bytes.push(0x0b),
            b'f' => bytes.push(0x0c),
            b'x' => {
                let digits = text.get(at..at + 2).and_then(|text| std::str::from_utf8(text).ok());
                if let Some(byte) = digits.and_then(|text| u8::from_str_radix(text, 16).ok()) {
                    bytes.push(byte);
                    at += 2;
                }
            }
            b'0'..=b'7' => {
                let mut value = u32::from(escape - b'0');
                for _ in 0..2 {
                    let Some(digit @ b'0'..=b'7') = text.get(at) else { break };
                    value = value * 8 + u32::from(digit - b'0');
                    at += 1;
                }
                bytes.push(u8::try_from(value & 0xff).unwrap_or(0));
            }
            other => bytes.push(other),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts =
        (Option<u32>, Option<LineTime>, String, String, String, Option<String>, Option<u64>);

    fn call(line: &str) -> Parts {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let line = parse(line.as_bytes()).unwrap();
        let LineContent::Call { name, arguments, ending } = line.says else { panic!("{line:?}") };
        let error = ending.error.map(text);
        (
            line.thread,
            line.stamp,
            text(name),
            text(arguments),
            text(ending.result),
            error,
            ending.wall_ns,
        )
    }

    #[test]
    fn a_line_is_read_in_every_form_that_strace_writes() {
        let (thread, stamp, name, arguments, result, error, wall) =
            call("18247 1795271282.479485 fdatasync(4</tmp/x.db>) = 0 <0.000512>");
        assert_eq!(
            (thread, stamp),
            (Some(18247), Some(LineTime::Epoch(1_795_271_282_479_485_000)))
        );
        assert_eq!((&*name, &*arguments, &*result), ("fdatasync", "4</tmp/x.db>", "0"));
        assert_eq!((error, wall), (None, Some(512_000)));
        let (thread, stamp, ..) = call("[pid   77] 23:59:59.5 getuid()          = 0");
        assert_eq!((thread, stamp), (Some(77), Some(LineTime::OfDay(86_399_500_000_000))));
        let (thread, stamp, .., error, _) =
            call("     0.000027 access(\"/x\", R_OK) = -1 ENOENT (No such file or directory)");
        assert_eq!((thread, stamp), (None, Some(LineTime::Since(27_000))));
        assert_eq!(error.as_deref(), Some("ENOENT"));
        let (.., result, _, wall) =
            call(r#"openat(AT_FDCWD</>, "a) = 1 <0.5>\"", O_RDONLY) = 3</a) = 1> <0.000100>"#);
        assert_eq!((&*result, wall), ("3</a) = 1>", Some(100_000)));
        let (.., arguments, result, _, _) = call(
            "poll([{fd=4<UNIX-STREAM:[1->2]>, events=POLLIN}], 1, -1) = 1 ([{fd=4<UNIX-STREAM:[1->2]>, revents=POLLIN}]) <4.2>",
        );
        assert_eq!((split(arguments.as_bytes(), 8).len(), &*result), (3, "1"));
        let (stamp, ..) = {
            let (_, stamp, a, ..) = call("10:00:00 (+     0.000012) brk(NULL) = 0x55");
            (stamp, a)
        };
        assert_eq!(stamp, Some(LineTime::OfDay(36_000_000_000_000)));
        let (.., result, error, _) = call(
            "7 read(0, 0x7ffe, 1024) = ? ERESTARTSYS (To be restarted if SA_RESTART is set) <1.5>",
        );
        assert_eq!((&*result, error.as_deref()), ("?", Some("ERESTARTSYS")));
        let (.., arguments, result, _, _) =
            call("7 futex(0x1, FUTEX_WAIT, 2, NULL <unfinished ...>) = ?");
        assert_eq!((&*arguments, &*result), ("0x1, FUTEX_WAIT, 2, NULL ", "?"));
    }

    #[test]
    fn halves_signals_ends_and_frames_are_told_apart() {
        let says = |line: &'static str| parse(line.as_bytes()).unwrap().says;
        assert_eq!(
            says("5 wait4(-1,  <unfinished ...>"),
            LineContent::Unfinished { name: b"wait4", arguments: b"-1," }
        );
        let LineContent::Resumed { name, arguments, ending } = says(
            "5 <... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 9 <0.02>",
        ) else {
            panic!()
        };
        assert_eq!(
            (name, ending.result, ending.wall_ns),
            (&b"wait4"[..], &b"9"[..], Some(20_000_000))
        );
        assert!(arguments.starts_with(b"[{WIFEXITED"));
        assert_eq!(says("5 --- SIGCHLD {si_signo=SIGCHLD} ---"), LineContent::Signal);
        assert_eq!(says("5 +++ exited with 3 +++"), LineContent::Exited(3));
        assert_eq!(
            says("5 +++ killed by SIGKILL (core dumped) +++"),
            LineContent::Killed(b"SIGKILL")
        );
        assert_eq!(
            says(" > /usr/lib/x.so(Foo::bar(int)+0x10) [0xfece0]"),
            LineContent::Frame(StackFrame {
                module: b"/usr/lib/x.so",
                symbol: b"Foo::bar(int)+0x10",
                address: 0xfece0
            })
        );
        assert_eq!(
            says(" > /usr/bin/ls() [0x3e1a]"),
            LineContent::Frame(StackFrame { module: b"/usr/bin/ls", symbol: b"", address: 0x3e1a })
        );
        for nothing in ["", "strace: Process 7 attached"] {
            assert_eq!(says(nothing), LineContent::Nothing);
        }
        for wrong in ["hello", "5", "[pid x] a() = 0", "5 a(\"", " > x", "5 (", "5 <... "] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn strings_lose_their_escapes() {
        assert_eq!(string(br#""a\n\303\244\x41\"\\"..."#).unwrap(), b"a\n\xc3\xa4A\"\\");
        assert_eq!(string(b"\"\\"), Some(Vec::new()));
        assert_eq!(string(b"NULL"), None);
    }
}
