//! The functions and structures of GLib 2.56 and later that are used here, declared by hand.
//!
//! No header and no library of GLib is needed to build this crate: `build.rs` makes libraries of the same names with
//! the functions below. `tests/layout.c` compares the structures with the headers.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A boolean of GLib.
pub(crate) type GBoolean = c_int;
/// The number of a type of GObject.
pub(crate) type GType = usize;

/// TRUE.
pub(crate) const TRUE: GBoolean = 1;
/// FALSE.
pub(crate) const FALSE: GBoolean = 0;
/// `G_LOG_LEVEL_WARNING`.
pub(crate) const LOG_WARNING: c_int = 1 << 4;

/// An object whose members are not used here.
#[repr(C)]
pub(crate) struct GObject {
    _members: [u8; 0],
}

/// A `GSettingsBackend`, of which only the address is used.
pub(crate) type GSettingsBackend = GObject;

/// A `GVariant`.
#[repr(C)]
pub(crate) struct GVariant {
    _members: [u8; 0],
}

/// A `GBytes`.
#[repr(C)]
pub(crate) struct GBytes {
    _members: [u8; 0],
}

/// A `GTree`.
#[repr(C)]
pub(crate) struct GTree {
    _members: [u8; 0],
}

/// A `GMainContext`.
#[repr(C)]
pub(crate) struct GMainContext {
    _members: [u8; 0],
}

/// A `GIOModule`, which is a `GTypeModule`.
#[repr(C)]
pub(crate) struct GTypeModule {
    _members: [u8; 0],
}

/// A `GWeakRef`.
#[repr(C)]
pub(crate) struct GWeakRef {
    pub(crate) private: *mut c_void,
}

/// What `g_type_query` says of a type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GTypeQuery {
    pub(crate) kind: GType,
    pub(crate) name: *const c_char,
    pub(crate) class_size: c_uint,
    pub(crate) instance_size: c_uint,
}

/// `GTypeInfo`.
#[repr(C)]
pub(crate) struct GTypeInfo {
    pub(crate) class_size: u16,
    pub(crate) base_init: *const c_void,
    pub(crate) base_finalize: *const c_void,
    pub(crate) class_init: unsafe extern "C" fn(*mut GSettingsBackendClass, *mut c_void),
    pub(crate) class_finalize: *const c_void,
    pub(crate) class_data: *const c_void,
    pub(crate) instance_size: u16,
    pub(crate) preallocated: u16,
    pub(crate) instance_init: unsafe extern "C" fn(*mut GSettingsBackend, *mut c_void),
    pub(crate) value_table: *const c_void,
}

/// `GObjectClass`.
#[repr(C)]
pub(crate) struct GObjectClass {
    pub(crate) kind: GType,
    pub(crate) construct_properties: *mut c_void,
    pub(crate) constructor: *const c_void,
    pub(crate) set_property: *const c_void,
    pub(crate) get_property: *const c_void,
    pub(crate) dispose: *const c_void,
    pub(crate) finalize: Option<unsafe extern "C" fn(*mut GObject)>,
    pub(crate) more: [*const c_void; 10],
}

type Read = unsafe extern "C" fn(
    *mut GSettingsBackend,
    *const c_char,
    *const c_void,
    GBoolean,
) -> *mut GVariant;
type ReadUserValue =
    unsafe extern "C" fn(*mut GSettingsBackend, *const c_char, *const c_void) -> *mut GVariant;
type GetWritable = unsafe extern "C" fn(*mut GSettingsBackend, *const c_char) -> GBoolean;
type Write = unsafe extern "C" fn(
    *mut GSettingsBackend,
    *const c_char,
    *mut GVariant,
    *mut c_void,
) -> GBoolean;
type WriteTree = unsafe extern "C" fn(*mut GSettingsBackend, *mut GTree, *mut c_void) -> GBoolean;
type Reset = unsafe extern "C" fn(*mut GSettingsBackend, *const c_char, *mut c_void);
type Subscribe = unsafe extern "C" fn(*mut GSettingsBackend, *const c_char);
type Sync = unsafe extern "C" fn(*mut GSettingsBackend);

/// `GSettingsBackendClass`, up to the last function that is used here.
#[repr(C)]
pub(crate) struct GSettingsBackendClass {
    pub(crate) parent: GObjectClass,
    pub(crate) read: Option<Read>,
    pub(crate) get_writable: Option<GetWritable>,
    pub(crate) write: Option<Write>,
    pub(crate) write_tree: Option<WriteTree>,
    pub(crate) reset: Option<Reset>,
    pub(crate) subscribe: Option<Subscribe>,
    pub(crate) unsubscribe: Option<Subscribe>,
    pub(crate) sync: Option<Sync>,
    pub(crate) get_permission: *const c_void,
    pub(crate) read_user_value: Option<ReadUserValue>,
}

/// Called for each element of a tree; TRUE ends the walk.
pub(crate) type GTraverseFunc =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> GBoolean;

#[link(name = "glib-2.0")]
unsafe extern "C" {
    pub(crate) fn g_bytes_new(data: *const c_void, size: usize) -> *mut GBytes;
    pub(crate) fn g_bytes_unref(bytes: *mut GBytes);
    pub(crate) fn g_log(domain: *const c_char, level: c_int, format: *const c_char, ...);
    pub(crate) fn g_main_context_new() -> *mut GMainContext;
    pub(crate) fn g_main_context_push_thread_default(context: *mut GMainContext);
    pub(crate) fn g_malloc0(size: usize) -> *mut c_void;
    pub(crate) fn g_strdup(text: *const c_char) -> *mut c_char;
    pub(crate) fn g_tree_foreach(tree: *mut GTree, visit: GTraverseFunc, data: *mut c_void);
    pub(crate) fn g_variant_byteswap(value: *mut GVariant) -> *mut GVariant;
    pub(crate) fn g_variant_get_data(value: *mut GVariant) -> *const c_void;
    pub(crate) fn g_variant_get_size(value: *mut GVariant) -> usize;
    pub(crate) fn g_variant_get_type_string(value: *mut GVariant) -> *const c_char;
    pub(crate) fn g_variant_new_from_bytes(
        kind: *const c_char,
        bytes: *mut GBytes,
        trusted: GBoolean,
    ) -> *mut GVariant;
    pub(crate) fn g_variant_parse(
        kind: *const c_char,
        text: *const c_char,
        limit: *const c_char,
        end: *mut *const c_char,
        error: *mut *mut c_void,
    ) -> *mut GVariant;
    pub(crate) fn g_variant_ref(value: *mut GVariant) -> *mut GVariant;
    pub(crate) fn g_variant_ref_sink(value: *mut GVariant) -> *mut GVariant;
    pub(crate) fn g_variant_type_string_is_valid(text: *const c_char) -> GBoolean;
    pub(crate) fn g_variant_unref(value: *mut GVariant);
}

#[link(name = "gobject-2.0")]
unsafe extern "C" {
    pub(crate) fn g_object_unref(object: *mut GObject);
    pub(crate) fn g_type_class_peek(kind: GType) -> *mut c_void;
    pub(crate) fn g_type_from_name(name: *const c_char) -> GType;
    pub(crate) fn g_type_module_use(module: *mut GTypeModule) -> GBoolean;
    pub(crate) fn g_type_query(kind: GType, query: *mut GTypeQuery);
    pub(crate) fn g_type_register_static(
        parent: GType,
        name: *const c_char,
        info: *const GTypeInfo,
        flags: c_uint,
    ) -> GType;
    pub(crate) fn g_weak_ref_clear(weak: *mut GWeakRef);
    pub(crate) fn g_weak_ref_get(weak: *mut GWeakRef) -> *mut GObject;
    pub(crate) fn g_weak_ref_init(weak: *mut GWeakRef, object: *mut GObject);
}

#[link(name = "gio-2.0")]
unsafe extern "C" {
    pub(crate) fn g_io_extension_point_implement(
        point: *const c_char,
        kind: GType,
        name: *const c_char,
        priority: c_int,
    ) -> *mut c_void;
    pub(crate) fn g_settings_backend_changed(
        backend: *mut GSettingsBackend,
        key: *const c_char,
        origin: *mut c_void,
    );
    pub(crate) fn g_settings_backend_get_type() -> GType;
    pub(crate) fn g_settings_backend_keys_changed(
        backend: *mut GSettingsBackend,
        path: *const c_char,
        items: *const *const c_char,
        origin: *mut c_void,
    );
    pub(crate) fn g_settings_backend_path_changed(
        backend: *mut GSettingsBackend,
        path: *const c_char,
        origin: *mut c_void,
    );
    pub(crate) fn g_settings_backend_path_writable_changed(
        backend: *mut GSettingsBackend,
        path: *const c_char,
    );
    pub(crate) fn g_settings_backend_writable_changed(
        backend: *mut GSettingsBackend,
        key: *const c_char,
    );
}
