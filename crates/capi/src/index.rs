//! Applications, plugins and MIME types: `unjank_index_*`.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use catalogue::index::input::IndexPart;
use catalogue::index::layout::{AppKey, PluginKey};
use catalogue::index::opener::Openers;
use catalogue::index::query::{Basis, QuestionAnswer};
use catalogue::index::record::{IndexRecord, MemberValue};
use catalogue::index::refresh::{Location, make_unstored};
use catalogue::index::sources::IndexSources;
use catalogue::index::{Index, app, plugin};
use xdg::mime::Globs;

use crate::abi::{self, LentTexts};
use crate::environment;
use crate::error::{CallError, enter};
use crate::handle::{Registry, close, lock};

/// Indexes by their handles.
static INDEXES: Registry<Mutex<OpenIndex>> = Registry::new();

/// A handle, which points nowhere.
#[derive(Debug)]
pub(crate) enum IndexHandle {}

/// What a handle stands for.
#[derive(Debug)]
struct OpenIndex {
    sources: IndexSources,
    location: Option<Location>,
    found: Vec<FoundRecord>,
    texts: LentTexts,
    mime_type: CString,
}

/// What was found, by name.
type FoundRecord = Vec<(String, FoundMember)>;

/// A member of what was found.
#[derive(Debug)]
enum FoundMember {
    Text(CString),
    List(Vec<String>),
}

/// A text may have so many bytes.
const LONGEST_TEXT: usize = 1 << 16;
/// Where a package manager puts the index that comes with the system.
const SYSTEM: &str = "/var/cache/unjank";

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    AppsInMenu,
    AppsForType,
    AppById,
    AppsInCategory,
    Plugins,
    PluginsIn,
    PluginById,
    PluginsForType,
}

impl Wanted {
    fn of(number: c_int) -> Option<Wanted> {
        Some(match number {
            1 => Wanted::AppsInMenu,
            2 => Wanted::AppsForType,
            3 => Wanted::AppById,
            4 => Wanted::AppsInCategory,
            5 => Wanted::Plugins,
            6 => Wanted::PluginsIn,
            7 => Wanted::PluginById,
            8 => Wanted::PluginsForType,
            _ => return None,
        })
    }

    fn needs_value(self) -> bool {
        !matches!(self, Wanted::AppsInMenu | Wanted::Plugins)
    }

    fn is_of_plugins(self) -> bool {
        matches!(
            self,
            Wanted::Plugins | Wanted::PluginsIn | Wanted::PluginById | Wanted::PluginsForType
        )
    }

    /// Returns what changed of that on which an answer rests.
    fn changed<'i>(self, index: &'i Index, value: &str) -> Option<&'i Path> {
        match self {
            Wanted::PluginsIn => index.stale_namespace(value),
            Wanted::PluginById => index.stale_plugin(value),
            Wanted::Plugins => index.stale(&[IndexPart::Plugins]),
            Wanted::PluginsForType => index.stale(&IndexPart::OF_PLUGINS),
            _ => index.stale(&IndexPart::OF_OPENERS),
        }
    }

    /// Answers from an index.
    fn find(self, index: &Index, value: &str, sources: &IndexSources) -> Vec<FoundRecord> {
        let openers = Openers::new(index, &sources.places.path);
        let desktops = &sources.places.desktops;
        let records: Vec<IndexRecord<'_>> = match self {
            Wanted::AppsInMenu => {
                let all = index.apps();
                all.filter(|app| openers.is_in_menu(*app, desktops)).collect()
            }
            Wanted::AppsForType => openers.all_for(value),
            Wanted::AppById => openers.app(value).into_iter().collect(),
            Wanted::AppsInCategory => {
                let all = index.apps_by(AppKey::Category, value);
                all.filter(|app| openers.is_in_menu(*app, desktops)).collect()
            }
            Wanted::Plugins => index.plugins().collect(),
            Wanted::PluginsIn => index.plugins_by(PluginKey::Namespace, value).collect(),
            Wanted::PluginById => index.plugin(value).into_iter().collect(),
            Wanted::PluginsForType => index.plugins_by(PluginKey::MimeType, value).collect(),
        };
        let id = if self.is_of_plugins() { plugin::ID } else { app::ID };
        records.into_iter().map(|record| found_of(record, id)).collect()
    }
}

/// Copies a record: the index that it is in may be another one at the next question.
fn found_of(record: IndexRecord<'_>, id: &str) -> FoundRecord {
    let text = |text: &[u8]| FoundMember::Text(abi::text_of(text.to_vec()));
    let mut found: FoundRecord = Vec::new();
    if let Some(id) = record.text(id) {
        found.push((".id".to_owned(), text(id.as_bytes())));
    }
    if let Some(path) = record.path() {
        found.push((".path".to_owned(), text(path.as_os_str().as_bytes())));
    }
    for (name, value) in record.members().filter(|(name, _)| !name.starts_with('.')) {
        let member = match value {
            MemberValue::Text(value) => text(value.as_bytes()),
            MemberValue::List(list) => FoundMember::List(list.map(str::to_owned).collect()),
            MemberValue::Truth(truth) => text(truth.to_string().as_bytes()),
            MemberValue::Whole(number) => text(number.to_string().as_bytes()),
            MemberValue::Fraction(number) => text(number.to_string().as_bytes()),
            MemberValue::Bytes(_) => continue,
        };
        found.push((name.to_owned(), member));
    }
    found
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_index_open(
    locale: *const c_char,
    index: *mut *mut IndexHandle,
) -> c_int {
    enter(|| {
        // SAFETY: by the contract of this function.
        let locale = unsafe { abi::utf8(locale, LONGEST_TEXT) }?;
        if index.is_null() {
            return Err(CallError::invalid("there is no place for the handle"));
        }
        let sources = environment::index_sources(locale);
        let location = environment::index_directory()
            .map(|directory| Location::new(directory, sources.clone(), Some(SYSTEM.into())));
        let opened = OpenIndex {
            sources,
            location,
            found: Vec::new(),
            texts: LentTexts::default(),
            mime_type: CString::default(),
        };
        // SAFETY: by the contract of this function.
        unsafe { abi::put(index, INDEXES.add(Arc::new(Mutex::new(opened)))) }?;
        Ok(0)
    })
}

/// See unjank.h.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unjank_index_close(index: *mut IndexHandle) -> c_int {
    enter(|| {
        close(&INDEXES, index)?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_index_find(
    index: *mut IndexHandle,
    what: c_int,
    value: *const c_char,
    count: *mut usize,
) -> c_int {
    enter(|| {
        let opened = INDEXES.get(index)?;
        let wanted =
            Wanted::of(what).ok_or_else(|| CallError::invalid("nothing such is looked for"))?;
        // SAFETY: by the contract of this function.
        let value = unsafe { abi::utf8(value, LONGEST_TEXT) }?;
        if wanted.needs_value() && value.is_none() {
            return Err(CallError::invalid("there is no value to look for"));
        }
        let value = value.unwrap_or_default();
        let mut opened = lock(&opened)?;
        let found = opened.find(wanted, value)?;
        // SAFETY: by the contract of this function.
        unsafe { abi::put(count, found.len()) }?;
        opened.found = found;
        Ok(0)
    })
}

impl OpenIndex {
    fn find(&self, wanted: Wanted, value: &str) -> Result<Vec<FoundRecord>, CallError> {
        let not_made = |error| CallError::of(&error, libc::EIO);
        let Some(location) = &self.location else {
            let index = make_unstored(&self.sources, None).map_err(not_made)?;
            return Ok(wanted.find(&index, value, &self.sources));
        };
        let question = |index: &Index| {
            let found = wanted.find(index, value, &self.sources);
            // Any other plugin may have come to have this identifier meanwhile.
            let is_one = matches!(wanted, Wanted::AppById | Wanted::AppsForType);
            let basis = match (is_one && !found.is_empty(), wanted.is_of_plugins()) {
                (true, _) => Basis::FilesRead,
                (false, true) => Basis::Plugins,
                (false, false) => Basis::Applications,
            };
            QuestionAnswer { value: found, basis }
        };
        let disk = store::disk::real();
        let asked = location.ask(&*disk, |index| wanted.changed(index, value), question);
        Ok(asked.map_err(not_made)?.value)
    }

    fn member(&self, number: usize, name: &str) -> Result<&FoundMember, CallError> {
        let record = self.found.get(number);
        let record = record.ok_or_else(|| {
            CallError::new(libc::ENOENT, format!("nothing has the number {number}"))
        })?;
        let member = record.iter().find(|(known, _)| known == name).map(|(_, member)| member);
        member.ok_or_else(|| CallError::new(libc::ENOENT, format!("it has no {name}")))
    }
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_index_text(
    index: *mut IndexHandle,
    number: usize,
    name: *const c_char,
    text: *mut *const c_char,
) -> c_int {
    enter(|| {
        let opened = INDEXES.get(index)?;
        // SAFETY: by the contract of this function.
        let name = unsafe { abi::utf8(name, LONGEST_TEXT) }?;
        let name = name.ok_or_else(|| CallError::invalid("there is no name"))?;
        let opened = lock(&opened)?;
        let FoundMember::Text(found) = opened.member(number, name)? else {
            return Err(CallError::new(libc::EPROTOTYPE, format!("{name} is a list")));
        };
        // SAFETY: by the contract of this function.
        unsafe { abi::put(text, found.as_ptr()) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_index_list(
    index: *mut IndexHandle,
    number: usize,
    name: *const c_char,
    texts: *mut *const *const c_char,
    count: *mut usize,
) -> c_int {
    enter(|| {
        let opened = INDEXES.get(index)?;
        // SAFETY: by the contract of this function.
        let name = unsafe { abi::utf8(name, LONGEST_TEXT) }?;
        let name = name.ok_or_else(|| CallError::invalid("there is no name"))?;
        let mut opened = lock(&opened)?;
        let lent = match opened.member(number, name)? {
            FoundMember::List(list) => {
                LentTexts::new(list.iter().map(|text| text.clone().into_bytes()))
            }
            FoundMember::Text(text) => LentTexts::new([text.as_bytes().to_vec()]),
        };
        opened.texts = lent;
        // SAFETY: by the contract of this function.
        unsafe { opened.texts.lend(texts, count) }?;
        Ok(0)
    })
}

/// See unjank.h.
///
/// # Safety
///
/// As unjank.h demands of its caller.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn unjank_index_mime_type(
    index: *mut IndexHandle,
    file_name: *const c_char,
    mime_type: *mut *const c_char,
) -> c_int {
    enter(|| {
        let opened = INDEXES.get(index)?;
        // SAFETY: by the contract of this function.
        let name = unsafe { abi::text(file_name, LONGEST_TEXT) }?;
        let name = name.ok_or_else(|| CallError::invalid("there is no name"))?;
        let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let mut opened = lock(&opened)?;
        let directories = environment::mime_directories();
        let globs = Globs::read_for(directories.iter().map(PathBuf::as_path), name);
        let found = globs.type_of(name);
        let found = found.ok_or_else(|| CallError::new(libc::ENOENT, "the name does not tell"))?;
        opened.mime_type = abi::text_of(found.as_bytes().to_vec());
        // SAFETY: by the contract of this function.
        unsafe { abi::put(mime_type, opened.mime_type.as_ptr()) }?;
        Ok(0)
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make files that need not last")]
mod tests {
    use std::fs::{File, FileTimes, create_dir, metadata, write};
    use std::io::Write;
    use std::process::Command;

    use super::*;

    /// Makes a plugin of Qt with this identifier, which has one letter.
    fn make_plugin(path: &Path, id: char) {
        let source = path.with_extension("s");
        // {4: {"KPlugin": {"Id": id}}}
        let text = format!(
            ".section .qtmetadata,\"a\",@progbits\n.ascii \"QTMETADATA !\"\n.byte 0,5,15,0\n\
             .byte 0xa1,4,0xa1,0x67\n.ascii \"KPlugin\"\n.byte 0xa1,0x62\n.ascii \"Id\"\n\
             .byte 0x61\n.ascii \"{id}\"\n"
        );
        write(&source, text).unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(["-shared", "-nostdlib", "-o"]).arg(path).arg(&source);
        assert!(compiler.status().unwrap().success());
    }

    #[test]
    fn a_plugin_that_came_to_have_an_identifier_is_found_by_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["plugins", "plugins/below", "cache"] {
            create_dir(at(name)).unwrap();
        }
        let first = at("plugins/first.so");
        make_plugin(&first, 'b');
        make_plugin(&at("plugins/below/second.so"), 'a');
        sys::file_clock::wait_until_later();
        let sources = IndexSources { plugin_roots: vec![at("plugins")], ..IndexSources::default() };
        let opened = OpenIndex {
            location: Some(Location::new(at("cache"), sources.clone(), None)),
            sources,
            found: Vec::new(),
            texts: LentTexts::default(),
            mime_type: CString::default(),
        };
        let path_of = |id: &str| {
            let found = opened.find(Wanted::PluginById, id).unwrap();
            let (_, path) = found.first()?.iter().find(|(name, _)| name == ".path")?;
            Some(format!("{path:?}"))
        };
        for _ in 0..2 {
            assert!(path_of("a").unwrap().contains("second.so"));
        }
        // The same file, with the same size and time, and nothing else is changed.
        let modified = metadata(&first).unwrap().modified().unwrap();
        make_plugin(&at("cache/other"), 'a');
        let bytes = std::fs::read(at("cache/other")).unwrap();
        let mut file = File::options().write(true).truncate(true).open(&first).unwrap();
        file.write_all(&bytes).unwrap();
        file.set_times(FileTimes::new().set_modified(modified)).unwrap();
        drop(file);
        assert!(path_of("a").unwrap().contains("first.so"));
    }
}
