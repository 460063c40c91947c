//! Which package has the debug symbols of a module, on systems with dpkg.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The longest list of a package's files that is read.
const LIST: u64 = 64 << 20;

/// The most packages that are looked through.
const PACKAGES: usize = 100_000;

/// Where packages install nothing, by the rules of Debian.
const NOT_OF_PACKAGES: [&str; 5] = ["/home/", "/root/", "/tmp/", "/usr/local/", "/var/tmp/"];

/// Returns the package that has installed `path`, by the lists in `info`, which is dpkg's `/var/lib/dpkg/info`.
#[must_use]
pub(crate) fn owner(info: &Path, path: &str) -> Option<String> {
    if NOT_OF_PACKAGES.iter().any(|place| path.starts_with(place)) {
        return None;
    }
    // Where `/lib` is `/usr/lib`, packages still list either.
    let other = path.strip_prefix("/usr").map_or_else(|| format!("/usr{path}"), str::to_owned);
    let lists = std::fs::read_dir(info).ok()?;
    let names = lists.take(PACKAGES).filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".list")).collect();
    // `bash` is in the package `bash`, and `libc.so.6` in `libc6`: all other lists need not be read then.
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split('.').next().unwrap_or(file).to_lowercase();
    names.sort_by_cached_key(|name| !name.starts_with(&stem));
    for name in names {
        let Some(package) = name.strip_suffix(".list") else { continue };
        let Ok(file) = File::open(info.join(&name)) else { continue };
        let mut text = Vec::new();
        if file.take(LIST).read_to_end(&mut text).is_err() {
            continue;
        }
        let mut lines = text.split(|byte| *byte == b'\n');
        if lines.any(|line| line == path.as_bytes() || line == other.as_bytes()) {
            // Of several architectures the name is followed by one.
            return package.split(':').next().map(str::to_owned);
        }
    }
    None
}

/// Returns the command that installs the debug symbols of `package`.
#[must_use]
pub(crate) fn command(package: &str) -> String {
    // The C library's are a package of the main archive, from before they were made for every package.
    let symbols = match package {
        "libc6" | "libc-bin" => "libc6-dbg".to_owned(),
        _ => format!("{package}-dbgsym"),
    };
    format!("sudo apt install {symbols}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(dir: &Path, name: &str, text: &str) {
        use std::io::Write;
        let mut file = File::create_new(dir.join(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn the_package_of_a_file_is_found_wherever_lib_is() {
        let dir = tempfile::tempdir().unwrap();
        list(dir.path(), "libx1:amd64.list", "/.\n/usr/lib/libx.so.1.2\n");
        list(dir.path(), "base.list", "/lib/libbase.so\n/lib/libbase.so.1\n");
        list(dir.path(), "base.md5sums", "/usr/lib/libother.so\n");
        assert_eq!(owner(dir.path(), "/usr/lib/libx.so.1.2").as_deref(), Some("libx1"));
        assert_eq!(owner(dir.path(), "/usr/lib/libbase.so").as_deref(), Some("base"));
        assert_eq!(owner(dir.path(), "/usr/lib/libother.so"), None);
        list(dir.path(), "mine.list", "/usr/local/lib/libmine.so\n");
        assert_eq!(owner(dir.path(), "/usr/local/lib/libmine.so"), None);
        assert_eq!(owner(&dir.path().join("none"), "/usr/lib/libx.so.1.2"), None);
    }

    #[test]
    fn the_package_of_a_like_name_is_read_first() {
        let dir = tempfile::tempdir().unwrap();
        for other in 0..20 {
            list(dir.path(), &format!("other{other}.list"), "/usr/lib/libx.so.1.2\n");
        }
        list(dir.path(), "libx1:amd64.list", "/usr/lib/libx.so.1.2\n");
        assert_eq!(owner(dir.path(), "/usr/lib/libx.so.1.2").as_deref(), Some("libx1"));
    }

    #[test]
    fn the_command_names_the_package_that_exists() {
        assert_eq!(command("libkf5configcore5"), "sudo apt install libkf5configcore5-dbgsym");
        assert_eq!(command("libc6"), "sudo apt install libc6-dbg");
    }
}
