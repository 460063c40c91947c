//! Text inside HTML and SVG.

/// Writes `text` so that it is text: `<` as `&lt;`, and so on; also right between double quotes.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML has no way to write these; a file name may hold them.
            letter if letter.is_control() && letter != '\n' && letter != '\t' => {
                escaped.push('\u{fffd}')
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Returns text for a page in which what stands between two backticks is set as code.
#[must_use]
pub(crate) fn prose(text: &str) -> String {
    let escaped = escape(text);
    let parts: Vec<&str> = escaped.split('`').collect();
    // One backtick more than pairs is one that somebody wrote: a name may hold it.
    if parts.len().is_multiple_of(2) {
        return escaped;
    }
    let set = |(at, part): (usize, &&str)| {
        if at % 2 == 1 { format!("<code>{part}</code>") } else { (*part).to_owned() }
    };
    parts.iter().enumerate().map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_backticks_is_code_and_still_no_markup() {
        assert_eq!(prose("as `a <b>` does"), "as <code>a &lt;b&gt;</code> does");
        assert_eq!(prose("`a` or `b`"), "<code>a</code> or <code>b</code>");
        assert_eq!(prose("a ` alone"), "a ` alone");
    }

    #[test]
    fn a_name_cannot_become_markup() {
        assert_eq!(escape(r#"<script>"a" & 'b'"#), "&lt;script&gt;&quot;a&quot; &amp; 'b'");
        assert_eq!(escape("a\u{0}b\u{1b}"), "a\u{fffd}b\u{fffd}");
    }
}
