//! `unjank bus diagram`: a capture as a sequence diagram.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use capture::diagram::{self, Bodies};
use capture::stats;
use check::result_file::is_same_file;
use clap::{Args, ValueEnum};
use report::provenance::Provenance;
use sys::clock::{Clock, SystemClock};

use super::input::Input;
use super::output;
use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory, Verdict};

/// So many messages are in an SVG picture; a larger one is of no use to anybody.
const DRAWN: usize = 2000;

/// Draw calls and their durations as a page, a picture, a graph or text.
#[derive(Debug, Args)]
#[command(before_help = "Example: unjank bus diagram session.pcapng -o session.html")]
pub(super) struct Diagram {
    /// The file, whose suffix selects the format: .html, .svg, .dot or .txt; - prints text.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The format, if the suffix does not select it.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// The time after which a reply is late, for example 8.3ms.
    #[arg(long, value_name = "TIME", value_parser = ::report::grade::parse_frame, default_value = "16.667ms")]
    frame: Duration,
    #[command(flatten)]
    input: Input,
}

/// What is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    /// A page that scrolls and searches.
    Html,
    /// A picture of the first messages.
    Svg,
    /// A graph of senders and receivers for Graphviz.
    Dot,
    /// One line for each message.
    Txt,
}

impl Format {
    fn of(path: &Path) -> Option<Format> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match &*ending {
            "html" | "htm" => Format::Html,
            "svg" => Format::Svg,
            "dot" | "gv" => Format::Dot,
            "txt" => Format::Txt,
            _ => return None,
        })
    }
}

impl Diagram {
    pub(super) fn run(self) -> Result<Verdict, Error> {
        let is_stdout = self.output == Path::new("-");
        let format = self.format.or_else(|| Format::of(&self.output));
        let format = match format {
            Some(format) => format,
            None if is_stdout => Format::Txt,
            None => {
                let error =
                    Error::new(FailureCategory::User, format!("write {}", self.output.display()));
                return Err(error
                    .because("unknown suffix")
                    .hint("use the suffix .html, .svg, .dot or .txt, or --format"));
            }
        };
        // Before the record is read, so that nobody waits for a file that cannot be written.
        let file = if is_stdout { None } else { Some(self.create()?) };
        let mut bodies = Bodies::default();
        let model = self.input.model(|_, header| {
            if format == Format::Html {
                bodies.keep(header);
            }
        })?;
        let drawn = diagram::Diagram::new(&model, self.input.filter());
        let output = match format {
            Format::Html => {
                let now = SystemClock::start().now();
                let provenance = Provenance::of_this_machine(crate::cli::command_line(), now);
                let stats = stats::collect(&model, self.input.filter());
                diagram::page(&drawn, &bodies, &stats, self.frame, &provenance).map_err(
                    |error| Error::new(FailureCategory::Internal, "write the page").because(error),
                )?
            }
            Format::Svg => diagram::picture(&drawn, DRAWN, self.frame),
            Format::Dot => diagram::dot(&drawn),
            Format::Txt => diagram::text(&drawn),
        };
        match file {
            None => {
                let is_text = format == Format::Txt;
                let mut stdout = if is_text { screen::stdout() } else { screen::data() };
                stdout.write_all(output.as_bytes())?;
                stdout.flush()?;
            }
            Some(mut file) => {
                if let Err(error) = file.write_all(output.as_bytes()) {
                    // Half a page is none; if it cannot be removed there is nobody left to tell.
                    let _ = std::fs::remove_file(&self.output);
                    return Err(self.cannot().because(error));
                }
            }
        }
        if format == Format::Svg && drawn.len() > DRAWN {
            let note = format!(
                "The picture has the first {DRAWN} of {} messages; --filter chooses others.",
                drawn.len()
            );
            // Nobody is left to be told when stderr is gone; the picture is written.
            let _ = sayln!(screen::stderr(), "{note}");
        }
        Ok(Verdict::Yes)
    }

    fn cannot(&self) -> Error {
        Error::new(FailureCategory::User, format!("write {}", self.output.display()))
    }

    fn create(&self) -> Result<std::fs::File, Error> {
        let made = if self.force {
            // The record itself may have been named by mistake, and it is mapped while it is read.
            if is_same_file(&self.output, self.input.file()) {
                return Err(self.cannot().because("it is the recording itself"));
            }
            output::replace(&self.output)
        } else {
            output::create_new(&self.output)
        };
        made.map_err(|error| {
            let exists = error.kind() == io::ErrorKind::AlreadyExists;
            let told = self.cannot().because(error);
            if exists { told.hint("use --force to replace it") } else { told }
        })
    }
}
