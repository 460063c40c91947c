//! `recent add`: remembers that a program opened documents.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use daemon::recents::places;
use recents::{Addition, AdditionOutcome, Privacy, Recents, RecentsError, Uri};
use xdg::mime::Globs;

use crate::cli::screen::{self, sayln};
use crate::error::{Error, FailureCategory, Verdict};

/// What a file is of which nothing is known.
const UNKNOWN: &str = "application/octet-stream";

/// Record that documents were opened.
///
/// Example: unjank recent add --app org.kde.kate notes.txt
///
/// Returns at once; GTK and KDE programs see the documents within a second. The
/// exit status is 1 if a setting or a rule excluded one: `unjank recent policy explain` shows which.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// Files, or URIs.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<OsString>,
    /// The program that opened them, by its identifier, such as org.kde.kate.
    #[arg(long, value_name = "NAME", default_value = "unjank")]
    app: String,
    /// The command line that opens a document again, with %u or %f in its place [default: from the program's name].
    #[arg(long, value_name = "LINE")]
    exec: Option<String>,
    /// Their MIME type [default: from the file's name].
    #[arg(long, value_name = "TYPE")]
    mime: Option<String>,
    /// A group that they belong to, such as Graphics; may be repeated.
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Show the documents in this program only.
    #[arg(long)]
    only_here: bool,
    /// Do not report excluded documents.
    #[arg(long, short)]
    quiet: bool,
}

impl Add {
    pub(super) fn run(self, out: &mut dyn Write) -> Result<Verdict, Error> {
        let mut recents = super::recents()?.with_writer(places::writer_program());
        let mut verdict = Verdict::Yes;
        // Of one name a part of the patterns is read; for several names all, once.
        let dirs = type_directories(&recents);
        let reads_all = self.mime.is_none() && self.files.len() > 1;
        let all = reads_all.then(|| Globs::read(dirs.iter().map(PathBuf::as_path)));
        for file in &self.files {
            let uri = super::uri(file)?;
            let mime = self.mime.clone().unwrap_or_else(|| type_of(&uri, &dirs, all.as_ref()));
            let addition = self.addition(uri, mime, &recents);
            let added = recents.add(&addition).map_err(|error| {
                let kind = match error {
                    RecentsError::Field(_) => FailureCategory::User,
                    _ => FailureCategory::Config,
                };
                Error::new(kind, format!("remember {}", screen::shown(&file.to_string_lossy())))
                    .because(error)
            })?;
            if let AdditionOutcome::Left(reason) = added {
                verdict = Verdict::No;
                if !self.quiet {
                    let name = super::shown(&addition.uri, &recents.places().home);
                    sayln!(out, "{name} is not remembered: {reason}.")?;
                }
            }
        }
        Ok(verdict)
    }

    fn addition(&self, uri: Uri, mime: String, recents: &Recents) -> Addition {
        let groups = if self.group.is_empty() { groups_of(&mime) } else { self.group.clone() };
        Addition {
            uri,
            groups,
            mime: Some(mime),
            privacy: if self.only_here { Privacy::Private } else { Privacy::Public },
            application: self.app.clone(),
            exec: self.exec.clone().unwrap_or_else(|| exec_of(&self.app)),
            at: recents.now(),
        }
    }
}

/// Returns the command line by which a program is usually started: the last part of its identifier.
fn exec_of(app: &str) -> String {
    match app.strip_suffix(".desktop").unwrap_or(app).rsplit('.').next() {
        Some(name) if app != "unjank" && !name.is_empty() => format!("{name} %u"),
        _ => "xdg-open %u".to_owned(),
    }
}

/// Returns the groups that KDE gives a document by its type.
fn groups_of(mime: &str) -> Vec<String> {
    let group = match mime.split('/').next() {
        Some("image") => "Graphics",
        Some("video") => "Video",
        Some("audio") => "Audio",
        _ => return Vec::new(),
    };
    vec![group.to_owned()]
}

/// Returns where types are installed, the most important first.
fn type_directories(recents: &Recents) -> Vec<PathBuf> {
    let installed = ["/usr/local/share/mime", "/usr/share/mime"].map(Into::into);
    std::iter::once(recents.places().data.join("mime")).chain(installed).collect()
}

/// Returns the type that a document's name says by `all` patterns, or by those of `dirs` for it; nobody looks into it.
fn type_of(uri: &Uri, dirs: &[PathBuf], all: Option<&Globs>) -> String {
    use std::os::unix::ffi::OsStrExt;
    let path = uri.to_path();
    let name = path.as_deref().and_then(Path::file_name).map(OsStrExt::as_bytes);
    let name = name.or_else(|| uri.as_str().rsplit('/').next().map(str::as_bytes));
    let Some(name) = name else { return UNKNOWN.to_owned() };
    let of_name = || Globs::read_for(dirs.iter().map(PathBuf::as_path), name);
    let globs = all.map_or_else(|| Cow::Owned(of_name()), Cow::Borrowed);
    globs.type_of(name).unwrap_or(UNKNOWN).to_owned()
}
