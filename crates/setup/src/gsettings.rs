//! The part `gsettings`: the module of GIO, and the variables by which programs use it.

use std::path::{Path, PathBuf};

use crate::error::SetupError;
use crate::layout::SetupLayout;
use crate::part::SetupPart;
use crate::planned::{PlannedContents, PlannedFile};
use crate::text::plain;

/// The file of `environment.d(5)` that has GSettings programs use the module.
pub const GSETTINGS_FILE: &str = "60-unjank-gsettings.conf";
/// The module, as it is built and as it is installed.
pub const GSETTINGS_MODULE: &str = "libgiounjank.so";

/// The directory of the module below that of libraries: GIO loads whatever is in a directory of modules.
pub(crate) const DIRECTORY: &str = "gio-modules";
/// What the modules of a directory are for, so that GIO loads none of them in a program that does not use settings.
pub(crate) const CACHE: &str = "giomodule.cache";
/// What stands in it, as `gio-querymodules` writes it.
pub(crate) const CACHE_TEXT: &str = "libgiounjank.so: gsettings-backend\n";

/// Where the module is.
enum ModulePlace {
    /// Where GIO looks by itself.
    OfGio,
    /// In a directory that GIO has to be told of.
    Directory(PathBuf),
    /// It was built there, and is copied.
    Built(PathBuf),
}

/// Returns where the module is that was installed beside the programs.
fn installed(programs: &Path, libraries: &Path) -> Result<ModulePlace, SetupError> {
    let own = libraries.join(DIRECTORY);
    if own.join(GSETTINGS_MODULE).exists() {
        return Ok(ModulePlace::Directory(own));
    }
    let prefix = programs.parent().unwrap_or(Path::new("/"));
    let multiarch = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    let directories = [&*multiarch, "lib64", "lib"].map(|lib| prefix.join(lib).join("gio/modules"));
    let found = directories.iter().find(|directory| directory.join(GSETTINGS_MODULE).exists());
    match found {
        None => {
            let path = directories[0].join(GSETTINGS_MODULE);
            Err(SetupError::MissingModule { path })
        }
        Some(_) if prefix == Path::new("/usr") => Ok(ModulePlace::OfGio),
        Some(directory) => Ok(ModulePlace::Directory(directory.clone())),
    }
}

/// Returns the files of the part: the variables, and the module where it is copied from the directory of a build.
pub(crate) fn files(
    layout: &SetupLayout,
    built: Option<&Path>,
    programs: &Path,
    libraries: &Path,
) -> Result<Vec<PlannedFile>, SetupError> {
    let place = match built.map(|directory| directory.join(GSETTINGS_MODULE)) {
        None => installed(programs, libraries)?,
        Some(module) if module.exists() => ModulePlace::Built(module),
        Some(path) => return Err(SetupError::MissingModule { path }),
    };
    let file = |path: PathBuf, contents: PlannedContents| PlannedFile {
        part: SetupPart::Gsettings,
        path,
        contents,
        mode: 0o644,
    };
    let mut files = Vec::new();
    let directory = match place {
        ModulePlace::OfGio => None,
        ModulePlace::Directory(directory) => Some(directory),
        ModulePlace::Built(module) => {
            let directory = layout.libraries.join(DIRECTORY);
            files.push(file(directory.join(GSETTINGS_MODULE), PlannedContents::CopyOf(module)));
            // After the module: GIO does not believe one that is older.
            let text = PlannedContents::Text(CACHE_TEXT.into());
            files.push(file(directory.join(CACHE), text));
            Some(directory)
        }
    };
    let variables = variables(directory.as_deref())?;
    // Last, so that no program is told of a module that is not there; it is the first that goes.
    files.push(file(layout.environment.join(GSETTINGS_FILE), PlannedContents::Text(variables)));
    Ok(files)
}

/// Returns the text of `environment.d(5)` by which GIO uses the module; what others have set stays.
fn variables(directory: Option<&Path>) -> Result<Vec<u8>, SetupError> {
    let mut text = "# Written by unjank; `unjank undo gsettings` removes it.\n\
                    GSETTINGS_BACKEND=unjank\n"
        .to_owned();
    if let Some(directory) = directory {
        let directory = plain(directory)?;
        text.push_str("GIO_EXTRA_MODULES=");
        text.push_str(directory);
        text.push_str("${GIO_EXTRA_MODULES:+:$GIO_EXTRA_MODULES}\n");
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "fixtures need not be durable")]

    use std::fs;

    use super::*;
    use crate::layout::SessionDirectories;

    fn layout() -> SetupLayout {
        SetupLayout::of_user(&SessionDirectories {
            home: "/home/ana".into(),
            config: "/home/ana/.config".into(),
            data: "/home/ana/.local/share".into(),
            state: "/home/ana/.local/state".into(),
        })
    }

    fn installed_below(prefix: &Path) -> Result<Vec<PlannedFile>, SetupError> {
        files(&layout(), None, &prefix.join("bin"), &prefix.join("lib/unjank"))
    }

    fn with_module(directory: &Path) {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(GSETTINGS_MODULE), "module").unwrap();
    }

    fn text(file: &PlannedFile) -> String {
        let PlannedContents::Text(text) = &file.contents else { panic!("{file:?}") };
        String::from_utf8(text.clone()).unwrap()
    }

    #[test]
    fn a_module_that_was_built_is_copied_to_a_directory_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        with_module(root.path());
        let layout = layout();
        let (programs, libraries) = (&layout.programs, &layout.libraries);
        let planned = files(&layout, Some(root.path()), programs, libraries).unwrap();
        let paths: Vec<&str> = planned.iter().filter_map(|file| file.path.to_str()).collect();
        let wanted = [
            "/home/ana/.local/lib/unjank/gio-modules/libgiounjank.so",
            "/home/ana/.local/lib/unjank/gio-modules/giomodule.cache",
            "/home/ana/.config/environment.d/60-unjank-gsettings.conf",
        ];
        assert_eq!(paths, wanted);
        let wanted = "GIO_EXTRA_MODULES=/home/ana/.local/lib/unjank/gio-modules${GIO_EXTRA_MODULES:+:$GIO_EXTRA_MODULES}\n";
        assert!(text(&planned[2]).ends_with(wanted), "{}", text(&planned[2]));
    }

    #[test]
    fn a_module_is_found_where_each_distribution_has_it() {
        let multiarch = format!("lib/{}-linux-gnu/gio/modules", std::env::consts::ARCH);
        for below in [&*multiarch, "lib64/gio/modules", "lib/gio/modules", "lib/unjank/gio-modules"]
        {
            let root = tempfile::tempdir().unwrap();
            let error = installed_below(root.path()).unwrap_err();
            assert!(matches!(error, SetupError::MissingModule { .. }), "{error:?}");
            with_module(&root.path().join(below));
            let planned = installed_below(root.path()).unwrap();
            assert_eq!(planned.len(), 1, "nothing is copied");
            let named = format!("GIO_EXTRA_MODULES={}$", root.path().join(below).display());
            assert!(text(&planned[0]).contains(&named), "{}", text(&planned[0]));
        }
    }

    #[test]
    fn gio_is_told_of_no_directory_that_is_its_own() {
        let text = String::from_utf8(variables(None).unwrap()).unwrap();
        assert!(text.ends_with("\nGSETTINGS_BACKEND=unjank\n"), "{text}");
        variables(Some(Path::new("/a:b"))).unwrap_err();
    }
}
