//! Errors with their causes.

use std::error::Error;

use crate::paragraph::without_error_numbers;

/// Returns an error and its causes as one sentence, without the numbers that Rust adds to what the kernel says.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    without_error_numbers(&text)
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::io;

    use super::*;

    #[derive(Debug)]
    struct NotRead(io::Error);

    impl fmt::Display for NotRead {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot read /a")
        }
    }

    impl Error for NotRead {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn causes_follow_their_error() {
        let error = NotRead(io::Error::from_raw_os_error(2));
        assert_eq!(chain(&error), "cannot read /a: No such file or directory");
    }
}
