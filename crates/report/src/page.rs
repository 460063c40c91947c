//! A page: one HTML file without network or fonts of its own; dark, light and on paper, and whole without scripts.

use super::advice::Advice;
use super::escape::{escape, prose};
use super::paragraph::capital;
use super::provenance::Provenance;

/// One thing to do.
#[derive(Clone, Copy, Debug)]
pub struct Todo<'a> {
    /// Why.
    pub reason: &'a str,
    /// What helps.
    pub advice: &'a [Advice],
}

/// What stands on a page, in the order in which it is read.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    body: String,
    style: String,
    tail: String,
}

impl Page {
    /// Starts a page with its title and the verdict, one sentence.
    #[must_use]
    pub fn new(title: &str, verdict: &str) -> Page {
        let body = format!(
            "<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n",
            escape(title),
            escape(&unbroken(verdict))
        );
        Page { title: title.to_owned(), body, ..Page::default() }
    }

    /// Adds markup as it is: whoever made it has escaped what others wrote.
    pub fn markup(&mut self, html: &str) {
        self.body.push_str(html);
    }

    /// Adds rules to the style of all pages.
    pub fn style(&mut self, css: &'static str) {
        self.style.push_str(css);
    }

    /// Adds an element behind everything that is read: data, and then a script that only makes the page handier.
    pub fn tail(&mut self, element: &str) {
        self.tail.push_str(element);
    }

    /// Adds a chart with the sentence that says how to read it.
    pub fn figure(&mut self, svg: &str, caption: &str) {
        self.body.push_str(&format!(
            "<figure>\n{svg}<figcaption>{}</figcaption>\n</figure>\n",
            escape(caption)
        ));
    }

    /// Adds a heading.
    pub fn heading(&mut self, text: &str) {
        self.body.push_str(&format!("<h2>{}</h2>\n", escape(text)));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, text: &str) {
        self.body.push_str(&format!("<p>{}</p>\n", prose(text)));
    }

    /// Adds a numbered list of what to do.
    pub fn advice(&mut self, entries: &[Todo<'_>]) {
        self.body.push_str("<ol>\n");
        for entry in entries {
            self.body.push_str(&format!("<li>{}", prose(entry.reason)));
            for advice in entry.advice {
                self.body.push_str(&format!("<br>→ {}", prose(&capital(&advice.text))));
                if let Some(command) = &advice.command {
                    self.body.push_str(&format!("<pre tabindex=\"0\">{}</pre>", escape(command)));
                }
            }
            self.body.push_str("</li>\n");
        }
        self.body.push_str("</ol>\n");
    }

    /// Adds a plain list.
    pub fn list(&mut self, entries: &[String]) {
        self.body.push_str("<ul>\n");
        for entry in entries {
            self.body.push_str(&format!("<li>{}</li>\n", prose(entry)));
        }
        self.body.push_str("</ul>\n");
    }

    /// Adds a table; from the second column on, cells are figures and stand at the right.
    pub fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) {
        self.body.push_str("<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr>");
        for heading in headings {
            self.body.push_str(&format!("<th scope=\"col\">{}</th>", escape(heading)));
        }
        self.body.push_str("</tr></thead>\n<tbody>\n");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                self.body.push_str(&format!("<td>{}</td>", escape(cell)));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>\n");
    }

    /// Begins a part that is folded away until it is asked for.
    pub fn fold(&mut self, title: &str) {
        self.body.push_str(&format!("<details><summary>{}</summary>\n", escape(title)));
    }

    /// Ends the part begun by [`Page::fold`].
    pub fn unfold(&mut self) {
        self.body.push_str("</details>\n");
    }

    /// Ends the page with where its figures come from.
    #[must_use]
    pub fn finish(self, setting: &[String], provenance: &Provenance) -> String {
        let lines: Vec<String> =
            setting.iter().cloned().chain(provenance.lines()).map(|line| escape(&line)).collect();
        // Whatever text of others is in a page, it loads nothing, sends nothing and, where we have no script, runs nothing.
        let scripts =
            if self.tail.contains("<script>") { "; script-src 'unsafe-inline'" } else { "" };
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}{scripts}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n{SWITCH}<main>\n{}\
             <h2>Where this comes from</h2>\n<p class=\"origin\">{}</p>\n</main>\n{}</body>\n</html>\n",
            escape(&self.title),
            self.style,
            self.body,
            lines.join("<br>\n"),
            self.tail
        )
    }
}

/// Keeps figures and their units on one line.
fn unbroken(text: &str) -> String {
    [" ms", " µs", " ns", " s", " frames"].into_iter().fold(text.to_owned(), |text, unit| {
        [" ", ",", ".", ";", ")"].into_iter().fold(text, |text, end| {
            text.replace(&format!("{unit}{end}"), &format!("\u{a0}{}{end}", unit.trim_start()))
        })
    })
}

/// What a page may do, as browsers are told.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// Chooses light or dark without a script; as the system says until something is chosen.
const SWITCH: &str = "<form class=\"switch\" aria-label=\"colours\">\
<label><input type=\"radio\" name=\"colours\" id=\"auto\" checked>system</label>\
<label><input type=\"radio\" name=\"colours\" id=\"light\">light</label>\
<label><input type=\"radio\" name=\"colours\" id=\"dark\">dark</label></form>\n";

/// Colours of data are from the Okabe-Ito set.
const STYLE: &str = include_str!("page.css");

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_page_is_one_file_that_asks_nobody_for_anything() {
        let mut page = Page::new("unjank <doctor>", "All is \"well\".");
        page.table(&["step", "time"], &[vec!["a & b".to_owned(), "1 ms".to_owned()]]);
        page.fold("details");
        let advice = [Advice { text: "do".to_owned(), command: Some("rm 'x'".to_owned()) }];
        page.advice(&[Todo { reason: "why", advice: &advice }]);
        page.unfold();
        let provenance =
            Provenance::of_this_machine("unjank doctor".to_owned(), SystemTime::UNIX_EPOCH);
        let html = page.finish(&[], &provenance);
        assert!(html.contains("unjank &lt;doctor&gt;") && html.contains("a &amp; b"));
        for outside in ["http://", "https://", "<script", "url(", "@import", "<link"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<details>").count(), html.matches("</details>").count());
        let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ";
        assert!(html.contains(policy) && !html.contains("script-src"), "{html}");
        let mut page = Page::new("unjank", "All is well.");
        page.tail("<script>\n1</script>\n");
        let html = page.finish(&[], &provenance);
        assert!(html.contains(policy) && html.contains("script-src 'unsafe-inline'\">"), "{html}");
    }
}
