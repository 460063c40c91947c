//! Adds a document to the recent documents of this user, as `recently-used-xbel` does by writing the whole list anew, and prints the list.
//! Run as: remember DOCUMENT APPLICATION COMMAND ("remember /home/ann/report.odt org.example.Editor 'editor %u'").
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program prints, and reads its environment"
)]

use std::path::Path;
use std::sync::Arc;

use unjank_recents::{
    Addition, Privacy, Recents, RecentsFiles, RememberingProgram, Uri, projection,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [document, application, exec] = &words[..] else {
        return Err("usage: remember DOCUMENT APPLICATION COMMAND".into());
    };
    let files = RecentsFiles::from_variables(|name| std::env::var_os(name));
    let clock = Arc::new(sys::clock::SystemClock::start());
    let mut recents = Recents::new(files, RememberingProgram::Ordinary, store::disk::real(), clock);
    recents.add(&Addition {
        uri: Uri::of_path(Path::new(document))?,
        mime: None,
        groups: Vec::new(),
        privacy: Privacy::Public,
        application: application.clone(),
        exec: exec.clone(),
        at: recents.now(),
    })?;
    // The files that GTK and KDE read; where a daemon of unjank runs, it does this.
    projection::project(&mut recents)?;
    for entry in recents.list()?.iter() {
        println!("{}", entry.uri.as_str());
    }
    Ok(())
}
