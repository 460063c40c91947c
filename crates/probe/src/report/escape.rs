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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_markup() {
        assert_eq!(escape(r#"<script>"a" & 'b'"#), "&lt;script&gt;&quot;a&quot; &amp; 'b'");
        assert_eq!(escape("a\u{0}b\u{1b}"), "a\u{fffd}b\u{fffd}");
    }
}
