//! Names as the programmer wrote them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

/// The longest name that is taken apart; compilers of templates make longer ones, people read none.
const MANGLED: usize = 4096;

/// The longest name that comes out: a short mangled name can repeat itself exponentially.
const PLAIN: usize = 1024;

/// Text that stops growing.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > PLAIN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Returns `name` as it was written, without parameters and hashes; what is not mangled stays as it is.
pub(super) fn demangled(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    if text.len() <= MANGLED {
        let rust = rustc_demangle::try_demangle(&text).ok().and_then(|name| {
            let mut plain = Bounded::default();
            write!(plain, "{name:#}").ok().map(|()| plain.0)
        });
        if let Some(plain) = rust.or_else(|| cpp(&text)) {
            return plain;
        }
    }
    text.chars().take(PLAIN).collect()
}

fn cpp(text: &str) -> Option<String> {
    // Parts of a function that compilers move away: `_ZN…v.cold`, `….isra.0`.
    let (mangled, part) = match text.find('.') {
        Some(dot) => text.split_at(dot),
        None => (text, ""),
    };
    if !mangled.starts_with("_Z") {
        return None;
    }
    let options = ParseOptions::default().recursion_limit(160);
    let symbol = cpp_demangle::Symbol::new_with_options(mangled, &options).ok()?;
    let mut plain = Bounded::default();
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(160);
    symbol.structured_demangle(&mut plain, &options).ok()?;
    if part.starts_with(".cold") {
        plain.write_str(" [cold]").ok()?;
    }
    Some(plain.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_and_rust_names_read_as_they_were_written() {
        assert_eq!(demangled(b"_ZN7KConfig4syncEv"), "KConfig::sync");
        assert_eq!(
            demangled(b"_ZN15KRecentDocument3addERK4QUrlRK7QString"),
            "KRecentDocument::add"
        );
        assert_eq!(demangled(b"_ZN7KConfig4syncEv.cold"), "KConfig::sync [cold]");
        assert_eq!(demangled(b"_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangled(b"_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangled(b"fdatasync"), "fdatasync");
    }

    #[test]
    fn a_name_that_only_looks_mangled_stays_and_none_grows_without_end() {
        assert_eq!(demangled(b"_ZNbroken"), "_ZNbroken");
        let bomb = format!("_Z1fI{}E", "S_S_".repeat(800));
        assert!(demangled(bomb.as_bytes()).len() <= 4 * PLAIN);
        let deep = format!("_Z{}i", "P".repeat(4000));
        assert!(demangled(deep.as_bytes()).len() <= 4 * PLAIN);
    }
}
