//! What was asked for: options in their order, and the environment where they say nothing.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::arguments::Given;
use super::charset::Charset;
use super::color::{ColorError, Colors, is_known_terminal};
use super::entry::TimeField;
use super::environment::{Environment, is_posix};
use super::glob::Glob;
use super::moment::TimeStyle;
use super::quote::{Quoting, Style, Unprintable};
use super::size::{SizeStyle, Suffix};
use super::template::Template;

/// How entries are laid out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Layout {
    /// A line each, with attributes.
    Long,
    /// A name a line.
    Lines,
    /// In columns, downwards.
    Down,
    /// In columns, across.
    Across,
    /// With commas.
    Commas,
    /// One JSON document.
    Json,
    /// By a template.
    Template(Template),
}

/// By what entries are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    /// By name, numbers in it by value.
    Natural,
    None,
    Size,
    Time,
    Extension,
    Version,
    Type,
    Width,
}

/// Which names are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// Those that begin with a dot.
    Skip,
    /// `.` and `..`.
    Almost,
    /// None.
    Show,
}

/// Which links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dereference {
    Never,
    /// Those on the command line that lead to directories.
    NamedDirectories,
    /// Those on the command line.
    Named,
    Always,
}

/// What follows a name to tell its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Indicators {
    None,
    /// A slash after directories.
    Slash,
    /// A character for each type but regular files.
    FileType,
    /// Also a star after programs.
    Classify,
}

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) layout: Layout,
    pub(super) sort: Sort,
    pub(super) reverse: bool,
    pub(super) dirs_first: bool,
    pub(super) time: TimeField,
    pub(super) time_style: TimeStyle,
    pub(super) hidden: Hidden,
    /// Names to leave out, always.
    pub(super) ignore: Vec<Glob>,
    /// Names to leave out unless all were asked for.
    pub(super) hide: Vec<Glob>,
    /// Only such names; all if there is none.
    pub(super) filter: Vec<Glob>,
    pub(super) recursive: bool,
    /// Directories themselves.
    pub(super) itself: bool,
    pub(super) dereference: Dereference,
    pub(super) inode: bool,
    pub(super) blocks: bool,
    pub(super) owner: bool,
    pub(super) group: bool,
    pub(super) author: bool,
    pub(super) numeric: bool,
    pub(super) acl: bool,
    /// How sizes of files are written.
    pub(super) size_style: SizeStyle,
    /// How sizes on the disk are written.
    pub(super) block_style: SizeStyle,
    pub(super) indicators: Indicators,
    pub(super) quoting: Quoting,
    /// For the names of directories above what is in them.
    pub(super) heading_quoting: Quoting,
    pub(super) colors: Option<Colors>,
    pub(super) hyperlinks: bool,
    /// Columns of a line; 0 is without end.
    pub(super) width: usize,
    /// The distance of tab stops; 0 is no tabulators.
    pub(super) tab: usize,
    /// What ends a line.
    pub(super) end: u8,
    pub(super) follow: bool,
    /// The time zone that the user asked for instead of the machine's: `TZ`.
    pub(super) time_zone: Option<std::ffi::OsString>,
    /// The characters of the terminal that stdout is.
    pub(super) terminal: Option<report::text::Charset>,
    /// The locale of names' order.
    pub(super) collation: String,
    /// What to tell the user before anything else.
    pub(super) warnings: Vec<String>,
}

/// Why options make no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// A value that the option does not take.
    #[error("invalid value {value:?} of --{option}")]
    Value {
        /// The option's long name.
        option: &'static str,
        /// What was given.
        value: String,
    },
    /// A template that cannot be read.
    #[error(transparent)]
    Template(#[from] super::template::TemplateError),
}

/// What options say, before the environment fills the gaps.
#[derive(Default)]
struct Said {
    layout: Option<Layout>,
    sort: Option<Sort>,
    time: Option<TimeField>,
    time_style: Option<TimeStyle>,
    hidden: Option<Hidden>,
    dereference: Option<Dereference>,
    indicators: Option<Indicators>,
    style: Option<Style>,
    unprintable: Option<Unprintable>,
    sizes: Option<SizeStyle>,
    blocks: Option<SizeStyle>,
    kibibytes: bool,
    color: Option<When>,
    hyperlink: Option<When>,
    width: Option<usize>,
    tab: Option<usize>,
    zero: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Auto,
    Never,
}

impl Options {
    /// Puts options and environment together.
    ///
    /// # Errors
    ///
    /// A value that makes no sense.
    pub(super) fn new(given: &[Given], environment: &Environment) -> Result<Options, OptionError> {
        let charset = environment.charset();
        let on_terminal = environment.terminal.is_some();
        let shown = if on_terminal { charset.on_terminal() } else { charset };
        let mut options = Options {
            layout: Layout::Lines,
            sort: Sort::Name,
            reverse: false,
            dirs_first: false,
            time: TimeField::Modified,
            time_style: TimeStyle::Locale,
            hidden: Hidden::Skip,
            ignore: Vec::new(),
            hide: Vec::new(),
            filter: Vec::new(),
            recursive: false,
            itself: false,
            dereference: Dereference::Never,
            inode: false,
            blocks: false,
            owner: true,
            group: true,
            author: false,
            numeric: false,
            acl: false,
            size_style: SizeStyle::BYTES,
            block_style: SizeStyle::BYTES,
            indicators: Indicators::None,
            quoting: Quoting {
                style: Style::Literal,
                charset: shown,
                unprintable: Unprintable::Keep,
                also: b"",
            },
            heading_quoting: Quoting {
                style: Style::Literal,
                charset: shown,
                unprintable: Unprintable::Keep,
                also: b":",
            },
            colors: None,
            hyperlinks: false,
            width: 80,
            tab: 8,
            end: b'\n',
            follow: false,
            time_zone: environment.time_zone.clone(),
            terminal: environment.terminal.map(|_| match charset {
                Charset::Ascii => report::text::Charset::Ascii,
                Charset::Utf8 | Charset::Utf8Terminal => report::text::Charset::Unicode,
            }),
            collation: environment.collation.clone(),
            warnings: Vec::new(),
        };
        let mut said = Said::default();
        for option in given {
            match &option.value {
                None => options.switch(&option.id, &mut said),
                Some(value) => options.value(&option.id, value, charset, environment, &mut said)?,
            }
        }
        options.settle(said, environment);
        Ok(options)
    }

    fn switch(&mut self, id: &str, said: &mut Said) {
        match id {
            "all" => said.hidden = Some(Hidden::Show),
            "almost-all" => said.hidden = Some(Hidden::Almost),
            "ignore-backups" => {
                let ascii = |pattern: &str| Glob::new(pattern.as_bytes(), Charset::Ascii);
                self.ignore.extend([ascii("*~"), ascii(".*~")]);
            }
            "directory" => self.itself = true,
            "recursive" => self.recursive = true,
            "dereference" => said.dereference = Some(Dereference::Always),
            "dereference-command-line" => said.dereference = Some(Dereference::Named),
            "dereference-directories" => said.dereference = Some(Dereference::NamedDirectories),
            "follow" => self.follow = true,
            "reverse" => self.reverse = true,
            "by-time" => said.sort = Some(Sort::Time),
            "by-size" => said.sort = Some(Sort::Size),
            "by-extension" => said.sort = Some(Sort::Extension),
            "by-version" => said.sort = Some(Sort::Version),
            "unsorted" => said.sort = Some(Sort::None),
            "fast" => {
                said.hidden = Some(Hidden::Show);
                said.sort = Some(Sort::None);
                if said.layout == Some(Layout::Long) {
                    said.layout = None;
                }
                said.color = Some(When::Never);
                said.hyperlink = Some(When::Never);
                self.blocks = false;
            }
            "dirs-first" => self.dirs_first = true,
            "long" => said.layout = Some(Layout::Long),
            "long-no-owner" => {
                said.layout = Some(Layout::Long);
                self.owner = false;
            }
            "long-no-group" => {
                said.layout = Some(Layout::Long);
                self.group = false;
            }
            "no-group" => self.group = false,
            "author" => self.author = true,
            "numeric" => {
                said.layout = Some(Layout::Long);
                self.numeric = true;
            }
            "full-time" => {
                said.layout = Some(Layout::Long);
                said.time_style = Some(TimeStyle::FullIso);
            }
            "acl" => self.acl = true,
            // -l shows a line each already.
            "lines" if said.layout != Some(Layout::Long) => said.layout = Some(Layout::Lines),
            "columns" => said.layout = Some(Layout::Down),
            "across" => said.layout = Some(Layout::Across),
            "commas" => said.layout = Some(Layout::Commas),
            "json" => said.layout = Some(Layout::Json),
            "zero" => {
                said.zero = true;
                said.unprintable = Some(Unprintable::Keep);
                if said.layout != Some(Layout::Long) {
                    said.layout = Some(Layout::Lines);
                }
                said.color = Some(When::Never);
                said.style = Some(Style::Literal);
            }
            "inode" => self.inode = true,
            "blocks" => self.blocks = true,
            "human" | "si" => {
                let style = SizeStyle::Human(if id == "si" { 1000 } else { 1024 });
                (said.sizes, said.blocks) = (Some(style), Some(style));
            }
            "kibibytes" => said.kibibytes = true,
            "slash" => said.indicators = Some(Indicators::Slash),
            "file-type" => said.indicators = Some(Indicators::FileType),
            "show-changed" => said.time = Some(TimeField::Changed),
            "show-accessed" => said.time = Some(TimeField::Accessed),
            "quote-c" => said.style = Some(Style::C),
            "escape" => said.style = Some(Style::Escape),
            "literal" => said.style = Some(Style::Literal),
            "question-marks" => said.unprintable = Some(Unprintable::QuestionMark),
            "show-control" => said.unprintable = Some(Unprintable::Keep),
            _ => (),
        }
    }

    fn value(
        &mut self,
        id: &str,
        value: &OsStr,
        charset: Charset,
        environment: &Environment,
        said: &mut Said,
    ) -> Result<(), OptionError> {
        let glob = || Glob::new(value.as_bytes(), charset);
        let text = value.to_string_lossy();
        let wrong = |option| OptionError::Value { option, value: text.clone().into_owned() };
        match id {
            "filter" => self.filter.push(glob()),
            "ignore" => self.ignore.push(glob()),
            "hide" => self.hide.push(glob()),
            "sort" => {
                said.sort = Some(match &*text {
                    "natural" => Sort::Natural,
                    "none" => Sort::None,
                    "size" => Sort::Size,
                    "time" => Sort::Time,
                    "extension" => Sort::Extension,
                    "version" => Sort::Version,
                    "type" => Sort::Type,
                    "width" => Sort::Width,
                    _ => Sort::Name,
                });
            }
            "time" => {
                said.time = Some(match &*text {
                    "atime" | "access" | "use" => TimeField::Accessed,
                    "ctime" | "status" | "change" => TimeField::Changed,
                    "birth" | "creation" => TimeField::Born,
                    _ => TimeField::Modified,
                });
            }
            "format" => {
                said.layout = Some(match &*text {
                    "verbose" | "long" => Layout::Long,
                    "commas" => Layout::Commas,
                    "horizontal" | "across" => Layout::Across,
                    "vertical" => Layout::Down,
                    "single-column" => Layout::Lines,
                    _ => Layout::Template(Template::parse(value.as_bytes())?),
                });
            }
            "time-style" => {
                let style = TimeStyle::parse(&text, is_posix(&environment.times));
                said.time_style = Some(style.ok_or_else(|| wrong("time-style"))?);
            }
            "block-size" => {
                let style = SizeStyle::parse(&text).ok_or_else(|| wrong("block-size"))?;
                (said.sizes, said.blocks) = (Some(style), Some(style));
            }
            "width" => said.width = Some(text.parse().map_err(|_| wrong("width"))?),
            "tabsize" => said.tab = Some(text.parse().map_err(|_| wrong("tabsize"))?),
            "color" => said.color = Some(when(&text)),
            "hyperlink" => said.hyperlink = Some(when(&text)),
            "classify" => {
                let wanted = match when(&text) {
                    When::Always => true,
                    When::Auto => environment.terminal.is_some(),
                    When::Never => false,
                };
                if wanted {
                    said.indicators = Some(Indicators::Classify);
                }
            }
            "indicator-style" => {
                said.indicators = Some(match &*text {
                    "slash" => Indicators::Slash,
                    "file-type" => Indicators::FileType,
                    "classify" => Indicators::Classify,
                    _ => Indicators::None,
                });
            }
            "quoting-style" => {
                said.style = Some(Style::named(&text).ok_or_else(|| wrong("quoting-style"))?);
            }
            _ => (),
        }
        Ok(())
    }

    /// Fills what was not said from the environment.
    fn settle(&mut self, said: Said, environment: &Environment) {
        let on_terminal = environment.terminal.is_some();
        self.layout = said.layout.clone().unwrap_or(match environment.terminal {
            Some(_) => Layout::Down,
            None => Layout::Lines,
        });
        let is_long = self.layout == Layout::Long;
        let by_time = said.time.is_some() && !is_long;
        self.sort = said.sort.unwrap_or(if by_time { Sort::Time } else { Sort::Name });
        self.time = said.time.unwrap_or(TimeField::Modified);
        self.hidden = said.hidden.unwrap_or(Hidden::Skip);
        self.indicators = said.indicators.unwrap_or(Indicators::None);
        let stays = self.itself || self.indicators == Indicators::Classify || is_long;
        let usual = if stays { Dereference::Never } else { Dereference::NamedDirectories };
        self.dereference = said.dereference.unwrap_or(usual);
        self.end = if said.zero { 0 } else { b'\n' };
        self.settle_sizes(&said, environment);
        if is_long {
            self.time_style = said.time_style.clone().unwrap_or_else(|| {
                let Some(named) = &environment.time_style else { return TimeStyle::Locale };
                TimeStyle::parse(named, is_posix(&environment.times)).unwrap_or_else(|| {
                    self.warnings.push(format!("cannot use the TIME_STYLE {named:?}"));
                    TimeStyle::Locale
                })
            });
        }
        let style = said.style.or_else(|| {
            let named = environment.quoting_style.as_ref()?;
            let style = Style::named(named);
            if style.is_none() {
                self.warnings.push(format!("cannot use the QUOTING_STYLE {named:?}"));
            }
            style
        });
        let usual = if on_terminal { Style::ShellEscape } else { Style::Literal };
        self.quoting.style = style.unwrap_or(usual);
        let usual = if on_terminal { Unprintable::QuestionMark } else { Unprintable::Keep };
        self.quoting.unprintable = said.unprintable.unwrap_or(usual);
        self.heading_quoting = Quoting { also: b":", ..self.quoting.clone() };
        self.quoting.also = match (self.quoting.style, self.indicators) {
            // GNU ls has the star the wrong way round: quoted where no star follows names.
            (Style::Escape, Indicators::FileType) => b" *=>@|",
            (Style::Escape, Indicators::Classify) => b" =>@|",
            (Style::Escape, _) => b" ",
            (_, Indicators::FileType) => b"*=>@|",
            (_, Indicators::Classify) => b"=>@|",
            _ => b"",
        };
        if self.quoting.style == Style::Escape {
            self.heading_quoting.also = b" :";
        }
        self.hyperlinks = is_wanted(said.hyperlink.unwrap_or(When::Never), on_terminal);
        let colors_on_terminal = on_terminal && !environment.no_color;
        if is_wanted(said.color.unwrap_or(When::Auto), colors_on_terminal) {
            self.settle_colors(environment);
        }
        self.settle_width(&said, environment);
    }

    fn settle_sizes(&mut self, said: &Said, environment: &Environment) {
        let parse = |text: &Option<String>| text.as_deref().and_then(SizeStyle::parse);
        let named = parse(&environment.block_size);
        self.size_style = said.sizes.or(named).unwrap_or(SizeStyle::BYTES);
        let usual = if environment.posix { 512 } else { 1024 };
        self.block_style = match said.blocks {
            Some(style) => style,
            None if said.kibibytes => SizeStyle::Blocks(1024, Suffix::None),
            None => named
                .or_else(|| parse(&environment.disk_block_size))
                .unwrap_or(SizeStyle::Blocks(usual, Suffix::None)),
        };
    }

    fn settle_colors(&mut self, environment: &Environment) {
        self.colors = match environment.colors() {
            None if !environment.color_term && !is_known_terminal(&environment.term) => None,
            None => Some(Colors::default()),
            Some(text) => match Colors::parse(text) {
                Ok(colors) => Some(colors),
                Err(error) => {
                    let why: &ColorError = &error;
                    self.warnings.push(format!("cannot use LS_COLORS: {why}"));
                    None
                }
            },
        };
    }

    fn settle_width(&mut self, said: &Said, environment: &Environment) {
        let from_terminal =
            environment.terminal.and_then(|terminal| terminal.columns).map(usize::from);
        self.width = said.width.or(from_terminal).unwrap_or_else(|| {
            let Some(columns) = &environment.columns else { return 80 };
            columns.parse().unwrap_or_else(|_| {
                self.warnings.push(format!("cannot use the COLUMNS {columns:?}"));
                80
            })
        });
        let tab = environment.tab_size.as_ref().and_then(|size| size.parse().ok());
        // Some terminals cannot do with colours and tabulators in one line.
        let usual = if self.colors.is_some() { 0 } else { tab.unwrap_or(8) };
        self.tab = if self.colors.is_some() { 0 } else { said.tab.unwrap_or(usual) };
    }

    /// Says whether quotes stand around some names only, and columns must be kept.
    pub(super) fn aligns_quotes(&self) -> bool {
        let in_columns = match self.layout {
            Layout::Long => true,
            Layout::Down | Layout::Across => self.width > 0,
            _ => false,
        };
        in_columns && self.quoting.style.is_variable()
    }
}

fn when(text: &str) -> When {
    match text {
        "never" | "no" | "none" => When::Never,
        "auto" | "tty" | "if-tty" => When::Auto,
        _ => When::Always,
    }
}

fn is_wanted(when: When, on_terminal: bool) -> bool {
    match when {
        When::Always => true,
        When::Auto => on_terminal,
        When::Never => false,
    }
}
