//! The types of GObject that GIO makes backends of, and the functions of the module.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use settings::changeset::Changeset;
use settings::client::ValueChoice;

use crate::backend::SettingsBackend;
use crate::boundary::enter;
use crate::emitter::{Emitter, OriginTag};
use crate::glib::{
    self, FALSE, GBoolean, GObject, GSettingsBackend, GSettingsBackendClass, GTree, GType,
    GTypeInfo, GTypeModule, GTypeQuery, GVariant, TRUE,
};
use crate::keyfile::KeyfileBackend;
use crate::value::{copy_from, text};

/// The point at which GIO is extended.
const EXTENSION_POINT: &CStr = c"gsettings-backend";
/// Below that of dconf's module (100): programs use it where the environment asks for it, or dconf's is not there.
const PRIORITY: i32 = 50;
/// Below all others: it is used where the environment asks for it.
const KEYFILE_PRIORITY: i32 = -100;

/// What the object stands for: its functions, in terms of Rust.
pub(crate) trait Backend: Send + Sync {
    /// Returns a reference to a value, or NULL. `expected` is the type that the schema has.
    fn read(&self, key: &str, choice: ValueChoice, expected: &CStr) -> *mut GVariant;
    /// Returns whether a value of the key can be set.
    fn is_writable(&self, key: &str) -> bool;
    /// Changes settings; returns whether they can be changed.
    fn change(&self, changes: &Changeset, origin: OriginTag) -> bool;
    /// Waits until all changes were made.
    fn sync(&self);
    /// Begins to watch a path.
    fn watch(&self, path: &str);
    /// Ends one watch of a path.
    fn unwatch(&self, path: &str);
}

/// Where an object has its [`Instance`], behind the members of its parent.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// What an object holds.
type Instance = *mut Box<dyn Backend>;

/// Returns the place of what an object holds.
///
/// # Safety
///
/// `object` is of our type.
unsafe fn place(object: *mut GObject) -> *mut Instance {
    // SAFETY: the type was registered with room for it there.
    unsafe { object.cast::<u8>().add(OFFSET.load(Ordering::Relaxed)) }.cast::<Instance>()
}

/// Returns the backend of an object.
///
/// # Safety
///
/// `object` is of our type, and lives until the caller is done with the result.
unsafe fn backend<'a>(object: *mut GSettingsBackend) -> &'a dyn Backend {
    // SAFETY: by the contract of this function.
    let place = unsafe { place(object) };
    // SAFETY: it was written when the object was made.
    let backend = unsafe { *place };
    // SAFETY: the box lives as long as the object.
    &**unsafe { &*backend }
}

unsafe extern "C" fn read(
    object: *mut GSettingsBackend,
    key: *const c_char,
    expected: *const c_void,
    is_default: GBoolean,
) -> *mut GVariant {
    let choice = if is_default == FALSE { ValueChoice::InForce } else { ValueChoice::Default };
    // SAFETY: GIO passes an object of this type and a key.
    unsafe { read_choice(object, key, choice, expected) }
}

unsafe extern "C" fn read_user_value(
    object: *mut GSettingsBackend,
    key: *const c_char,
    expected: *const c_void,
) -> *mut GVariant {
    // SAFETY: GIO passes an object of this type, a key and a type.
    unsafe { read_choice(object, key, ValueChoice::User, expected) }
}

/// # Safety
///
/// `object` is of our type, `key` a text of C, and `expected` a `GVariantType`.
unsafe fn read_choice(
    object: *mut GSettingsBackend,
    key: *const c_char,
    choice: ValueChoice,
    expected: *const c_void,
) -> *mut GVariant {
    enter(ptr::null_mut(), || {
        if expected.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: a `GVariantType` is its type string, which ends with the type; those of schemas have a NUL behind them.
        let expected = unsafe { CStr::from_ptr(expected.cast::<c_char>()) };
        // SAFETY: by the contract of this function.
        let Some(key) = (unsafe { text(key) }) else { return ptr::null_mut() };
        // SAFETY: by the contract of this function.
        unsafe { backend(object) }.read(key, choice, expected)
    })
}

unsafe extern "C" fn get_writable(object: *mut GSettingsBackend, key: *const c_char) -> GBoolean {
    enter(FALSE, || {
        // SAFETY: GIO passes a key.
        let Some(key) = (unsafe { text(key) }) else { return FALSE };
        // SAFETY: GIO passes an object of this type.
        GBoolean::from(unsafe { backend(object) }.is_writable(key))
    })
}

/// Adds a change to a set; returns whether it could be.
///
/// # Safety
///
/// `key` is a text of C, `value` a `GVariant` or NULL.
unsafe fn add(changes: &mut Changeset, key: *const c_char, value: *mut GVariant) -> bool {
    // SAFETY: by the contract of this function.
    let Some(key) = (unsafe { text(key) }) else { return false };
    if value.is_null() {
        changes.change(key, None);
        return true;
    }
    // SAFETY: by the contract of this function.
    let Some(value) = (unsafe { copy_from(value) }) else { return false };
    changes.change(key, Some(value));
    true
}

/// A reference to a value that was passed, which may be floating, for as long as it is used.
struct Sunk(*mut GVariant);

impl Sunk {
    /// # Safety
    ///
    /// `value` is a `GVariant` or NULL.
    unsafe fn new(value: *mut GVariant) -> Sunk {
        if !value.is_null() {
            // SAFETY: by the contract of this function.
            unsafe { glib::g_variant_ref_sink(value) };
        }
        Sunk(value)
    }
}

impl Drop for Sunk {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: this is the reference that was taken.
            unsafe { glib::g_variant_unref(self.0) };
        }
    }
}

unsafe extern "C" fn write(
    object: *mut GSettingsBackend,
    key: *const c_char,
    value: *mut GVariant,
    origin: *mut c_void,
) -> GBoolean {
    enter(FALSE, || {
        // SAFETY: GIO passes a value.
        let value = unsafe { Sunk::new(value) };
        let mut changes = Changeset::default();
        // SAFETY: GIO passes a key and a value.
        if !unsafe { add(&mut changes, key, value.0) } {
            return FALSE;
        }
        // SAFETY: GIO passes an object of this type.
        GBoolean::from(unsafe { backend(object) }.change(&changes, OriginTag(origin)))
    })
}

/// The changes that a tree is walked for.
struct TreeWalk {
    changes: Changeset,
    is_good: bool,
}

unsafe extern "C" fn visit(key: *mut c_void, value: *mut c_void, walk: *mut c_void) -> GBoolean {
    enter(TRUE, || {
        // SAFETY: `write_tree` passes this, and nothing else refers to it meanwhile.
        let walk = unsafe { &mut *walk.cast::<TreeWalk>() };
        // SAFETY: the trees that GIO passes have keys and values, or NULL for a reset.
        walk.is_good &= unsafe { add(&mut walk.changes, key.cast(), value.cast()) };
        FALSE
    })
}

unsafe extern "C" fn write_tree(
    object: *mut GSettingsBackend,
    tree: *mut GTree,
    origin: *mut c_void,
) -> GBoolean {
    enter(FALSE, || {
        let mut walk = TreeWalk { changes: Changeset::default(), is_good: true };
        // SAFETY: GIO passes a tree, which is walked before this returns.
        unsafe { glib::g_tree_foreach(tree, visit, (&raw mut walk).cast::<c_void>()) };
        if !walk.is_good {
            return FALSE;
        }
        // SAFETY: GIO passes an object of this type.
        GBoolean::from(unsafe { backend(object) }.change(&walk.changes, OriginTag(origin)))
    })
}

unsafe extern "C" fn reset(object: *mut GSettingsBackend, key: *const c_char, origin: *mut c_void) {
    // SAFETY: GIO passes what it passes to `write`; no value is a reset.
    unsafe { write(object, key, ptr::null_mut(), origin) };
}

unsafe extern "C" fn subscribe(object: *mut GSettingsBackend, path: *const c_char) {
    enter((), || {
        // SAFETY: GIO passes a path.
        if let Some(path) = unsafe { text(path) } {
            // SAFETY: GIO passes an object of this type.
            unsafe { backend(object) }.watch(path);
        }
    });
}

unsafe extern "C" fn unsubscribe(object: *mut GSettingsBackend, path: *const c_char) {
    enter((), || {
        // SAFETY: GIO passes a path.
        if let Some(path) = unsafe { text(path) } {
            // SAFETY: GIO passes an object of this type.
            unsafe { backend(object) }.unwatch(path);
        }
    });
}

unsafe extern "C" fn sync(object: *mut GSettingsBackend) {
    // SAFETY: GIO passes an object of this type.
    enter((), || unsafe { backend(object) }.sync());
}

unsafe extern "C" fn class_init(class: *mut GSettingsBackendClass, _data: *mut c_void) {
    // SAFETY: GObject passes a class of this type, to which nothing else refers yet.
    let class = unsafe { &mut *class };
    class.parent.finalize = Some(finalize);
    class.read = Some(read);
    class.read_user_value = Some(read_user_value);
    class.get_writable = Some(get_writable);
    class.write = Some(write);
    class.write_tree = Some(write_tree);
    class.reset = Some(reset);
    class.subscribe = Some(subscribe);
    class.unsubscribe = Some(unsubscribe);
    class.sync = Some(sync);
}

unsafe extern "C" fn dconf_init(object: *mut GSettingsBackend, _class: *mut c_void) {
    // SAFETY: GObject passes an object of this type.
    unsafe { init(object, |emitter| Box::new(SettingsBackend::open(emitter))) };
}

unsafe extern "C" fn keyfile_init(object: *mut GSettingsBackend, _class: *mut c_void) {
    // SAFETY: GObject passes an object of this type.
    unsafe { init(object, |emitter| Box::new(KeyfileBackend::open(emitter))) };
}

/// Gives a new object what it stands for.
///
/// # Safety
///
/// `object` is of our type, and nobody uses it yet.
unsafe fn init(object: *mut GSettingsBackend, open: impl FnOnce(Emitter) -> Box<dyn Backend>) {
    enter((), || {
        // SAFETY: by the contract of this function.
        let emitter = unsafe { Emitter::new(object) };
        let backend = open(emitter);
        // SAFETY: by the contract of this function.
        let place = unsafe { place(object) };
        // SAFETY: there is room for it, at which nobody looks yet.
        unsafe { place.write(Box::into_raw(Box::new(backend))) };
    });
}

unsafe extern "C" fn finalize(object: *mut GObject) {
    enter((), || {
        // SAFETY: GObject passes an object of this type, once.
        let place = unsafe { place(object) };
        // SAFETY: it was written when the object was made.
        let backend = unsafe { place.read() };
        // SAFETY: it came from a box, and nobody uses the object any more.
        drop(unsafe { Box::from_raw(backend) });
    });
    // SAFETY: no precondition.
    let parent = unsafe { glib::g_settings_backend_get_type() };
    // SAFETY: the class exists as long as an object of a type below it.
    let parent = unsafe { glib::g_type_class_peek(parent) };
    // SAFETY: that is the class of the parent.
    let finalize = unsafe { (*parent.cast::<GSettingsBackendClass>()).parent.finalize };
    if let Some(finalize) = finalize {
        // SAFETY: the object is of that type, too.
        unsafe { finalize(object) };
    }
}

/// The function that completes a new object.
type InstanceInit = unsafe extern "C" fn(*mut GSettingsBackend, *mut c_void);

/// Registers a type, or finds it where another copy of the module did so.
fn register(name: &CStr, instance_init: InstanceInit) -> GType {
    // SAFETY: the text has a NUL.
    let known = unsafe { glib::g_type_from_name(name.as_ptr()) };
    if known != 0 {
        return known;
    }
    // SAFETY: no precondition.
    let parent = unsafe { glib::g_settings_backend_get_type() };
    let mut query = GTypeQuery { kind: 0, name: ptr::null(), class_size: 0, instance_size: 0 };
    // SAFETY: the structure is written.
    unsafe { glib::g_type_query(parent, &raw mut query) };
    let alignment = align_of::<Instance>();
    let offset = (query.instance_size as usize).next_multiple_of(alignment);
    let (Ok(class_size), Ok(instance_size)) =
        (u16::try_from(query.class_size), u16::try_from(offset + size_of::<Instance>()))
    else {
        return 0;
    };
    OFFSET.store(offset, Ordering::Relaxed);
    let info = GTypeInfo {
        class_size,
        base_init: ptr::null(),
        base_finalize: ptr::null(),
        class_init,
        class_finalize: ptr::null(),
        class_data: ptr::null(),
        instance_size,
        preallocated: 0,
        instance_init,
        value_table: ptr::null(),
    };
    // SAFETY: the sizes hold those of the parent, and the structure is copied.
    unsafe { glib::g_type_register_static(parent, name.as_ptr(), &raw const info, 0) }
}

/// Called by GIO once it has loaded the module.
///
/// # Safety
///
/// `module` is the `GIOModule`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn g_io_module_load(module: *mut GTypeModule) {
    enter((), || {
        // Objects of the type may be there as long as the program.
        // SAFETY: by the contract of this function.
        unsafe { glib::g_type_module_use(module) };
        let types: [(&CStr, InstanceInit, &CStr, i32); 2] = [
            (c"UnjankSettingsBackend", dconf_init, c"unjank", PRIORITY),
            (c"UnjankKeyfileBackend", keyfile_init, c"unjank-keyfile", KEYFILE_PRIORITY),
        ];
        for (type_name, init, name, priority) in types {
            let kind = register(type_name, init);
            if kind == 0 {
                continue;
            }
            let (point, name) = (EXTENSION_POINT.as_ptr(), name.as_ptr());
            // SAFETY: the texts have NULs, and the type is a backend.
            unsafe { glib::g_io_extension_point_implement(point, kind, name, priority) };
        }
    });
}

/// Never called: the module stays in use.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn g_io_module_unload(_module: *mut GTypeModule) {}

/// Called by `gio-querymodules`; returns the extension points of the module, to be freed with `g_strfreev`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn g_io_module_query() -> *mut *mut c_char {
    // SAFETY: it is all zeros, and NULL ends the list.
    let points = unsafe { glib::g_malloc0(2 * size_of::<*mut c_char>()) }.cast::<*mut c_char>();
    // SAFETY: the text has a NUL.
    let point = unsafe { glib::g_strdup(EXTENSION_POINT.as_ptr()) };
    // SAFETY: there is room for two.
    unsafe { points.write(point) };
    points
}

impl Backend for Arc<SettingsBackend> {
    fn read(&self, key: &str, choice: ValueChoice, _expected: &CStr) -> *mut GVariant {
        SettingsBackend::read(self, key, choice)
    }

    fn is_writable(&self, key: &str) -> bool {
        SettingsBackend::is_writable(self, key)
    }

    fn change(&self, changes: &Changeset, origin: OriginTag) -> bool {
        SettingsBackend::change(self, changes, origin)
    }

    fn sync(&self) {
        SettingsBackend::sync(self);
    }

    fn watch(&self, path: &str) {
        SettingsBackend::watch(self, path);
    }

    fn unwatch(&self, path: &str) {
        SettingsBackend::unwatch(self, path);
    }
}

impl Backend for Arc<KeyfileBackend> {
    fn read(&self, key: &str, choice: ValueChoice, expected: &CStr) -> *mut GVariant {
        KeyfileBackend::read(self, key, choice, expected)
    }

    fn is_writable(&self, key: &str) -> bool {
        KeyfileBackend::is_writable(self, key)
    }

    fn change(&self, changes: &Changeset, origin: OriginTag) -> bool {
        KeyfileBackend::change(self, changes, origin)
    }

    fn sync(&self) {
        KeyfileBackend::sync(self);
    }

    fn watch(&self, _path: &str) {
        KeyfileBackend::watch(self);
    }

    fn unwatch(&self, _path: &str) {}
}
