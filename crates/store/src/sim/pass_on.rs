//! Disks of tests that do some calls themselves and pass all others on.

/// Writes methods of [`Disk`](crate::disk::Disk) that pass their calls on, by name: `pass_on!(this, path => this.disk; read stat token)`.
///
/// `this` is the disk that is called, `path` what the call is about, of a rename where it leads; a token is about an empty path.
#[macro_export]
macro_rules! pass_on {
    ($this:ident, $path:ident => $disk:expr; $($method:ident)*) => {
        $($crate::pass_on!(@ $method $this $path $disk);)*
    };
    (@ create_dir $this:ident $path:ident $disk:expr) => {
        fn create_dir(&self, $path: &::std::path::Path, mode: u32) -> ::std::io::Result<()> {
            let $this = self;
            $disk.create_dir($path, mode)
        }
    };
    (@ create $this:ident $path:ident $disk:expr) => {
        fn create(
            &self,
            $path: &::std::path::Path,
            mode: u32,
        ) -> ::std::io::Result<::std::boxed::Box<dyn $crate::disk::DiskFile>> {
            let $this = self;
            $disk.create($path, mode)
        }
    };
    (@ create_in_memory $this:ident $path:ident $disk:expr) => {
        fn create_in_memory(
            &self,
            $path: &::std::path::Path,
            len: u64,
        ) -> ::std::io::Result<::std::boxed::Box<dyn $crate::disk::DiskFile>> {
            let $this = self;
            $disk.create_in_memory($path, len)
        }
    };
    (@ rename $this:ident $path:ident $disk:expr) => {
        fn rename(
            &self,
            from: &::std::path::Path,
            $path: &::std::path::Path,
        ) -> ::std::io::Result<()> {
            let $this = self;
            $disk.rename(from, $path)
        }
    };
    (@ own $this:ident $path:ident $disk:expr) => {
        fn own(
            &self,
            $path: &::std::path::Path,
            patience: ::std::time::Duration,
        ) -> ::std::io::Result<::std::option::Option<::std::boxed::Box<dyn $crate::disk::FileLock>>> {
            let $this = self;
            $disk.own($path, patience)
        }
    };
    (@ hold $this:ident $path:ident $disk:expr) => {
        fn hold(&self, $path: &::std::path::Path) -> $crate::disk::PinnedFile {
            let $this = self;
            $disk.hold($path)
        }
    };
    (@ token $this:ident $path:ident $disk:expr) => {
        fn token(&self) -> ::std::io::Result<u64> {
            let ($this, $path) = (self, ::std::path::Path::new(""));
            let _ = $path;
            $disk.token()
        }
    };
    (@ read $($rest:tt)*) => { $crate::pass_on!(@@ read ::std::vec::Vec<u8>, $($rest)*); };
    (@ stat $($rest:tt)*) => { $crate::pass_on!(@@ stat $crate::disk::FileStat, $($rest)*); };
    (@ read_link $($rest:tt)*) => {
        $crate::pass_on!(@@ read_link ::std::path::PathBuf, $($rest)*);
    };
    (@ list $($rest:tt)*) => {
        $crate::pass_on!(@@ list ::std::vec::Vec<::std::ffi::OsString>, $($rest)*);
    };
    (@ open $($rest:tt)*) => {
        $crate::pass_on!(@@ open ::std::boxed::Box<dyn $crate::disk::DiskFile>, $($rest)*);
    };
    (@ open_log $($rest:tt)*) => {
        $crate::pass_on!(@@ open_log ::std::boxed::Box<dyn $crate::disk::LogFile>, $($rest)*);
    };
    (@ open_append $($rest:tt)*) => {
        $crate::pass_on!(@@ open_append ::std::boxed::Box<dyn $crate::disk::AppendFile>, $($rest)*);
    };
    (@ remove $($rest:tt)*) => { $crate::pass_on!(@@ remove (), $($rest)*); };
    (@ remove_abandoned $($rest:tt)*) => { $crate::pass_on!(@@ remove_abandoned bool, $($rest)*); };
    (@ sync_dir $($rest:tt)*) => { $crate::pass_on!(@@ sync_dir (), $($rest)*); };
    (@ try_lock $($rest:tt)*) => {
        $crate::pass_on!(@@ try_lock
            ::std::option::Option<::std::boxed::Box<dyn $crate::disk::FileLock>>, $($rest)*);
    };
    (@@ $method:ident $result:ty, $this:ident $path:ident $disk:expr) => {
        fn $method(&self, $path: &::std::path::Path) -> ::std::io::Result<$result> {
            let $this = self;
            $disk.$method($path)
        }
    };
}
