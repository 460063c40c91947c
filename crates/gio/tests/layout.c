/* The structures that src/glib.rs declares, compared with GLib's headers. */
#include <stddef.h>
#define G_SETTINGS_ENABLE_BACKEND
#include <gio/gio.h>
#include <gio/gsettingsbackend.h>

#define IS_AT(type, member, slot) \
    _Static_assert(offsetof(type, member) == (slot) * sizeof(void *), #type "." #member)

IS_AT(GObjectClass, constructor, 2);
IS_AT(GObjectClass, dispose, 5);
IS_AT(GObjectClass, finalize, 6);
_Static_assert(sizeof(GObjectClass) == 17 * sizeof(void *), "GObjectClass");
IS_AT(GSettingsBackendClass, read, 17);
IS_AT(GSettingsBackendClass, get_writable, 18);
IS_AT(GSettingsBackendClass, write, 19);
IS_AT(GSettingsBackendClass, write_tree, 20);
IS_AT(GSettingsBackendClass, reset, 21);
IS_AT(GSettingsBackendClass, subscribe, 22);
IS_AT(GSettingsBackendClass, unsubscribe, 23);
IS_AT(GSettingsBackendClass, sync, 24);
IS_AT(GSettingsBackendClass, get_permission, 25);
IS_AT(GSettingsBackendClass, read_user_value, 26);
IS_AT(GTypeInfo, base_init, 1);
IS_AT(GTypeInfo, class_init, 3);
IS_AT(GTypeInfo, class_data, 5);
_Static_assert(offsetof(GTypeInfo, instance_size) == 6 * sizeof(void *), "instance_size");
_Static_assert(offsetof(GTypeInfo, n_preallocs) == 6 * sizeof(void *) + 2, "n_preallocs");
IS_AT(GTypeInfo, instance_init, 7);
IS_AT(GTypeInfo, value_table, 8);
_Static_assert(sizeof(GTypeInfo) == 9 * sizeof(void *), "GTypeInfo");
_Static_assert(offsetof(GTypeQuery, class_size) == 2 * sizeof(void *), "class_size");
_Static_assert(offsetof(GTypeQuery, instance_size) == 2 * sizeof(void *) + 4, "instance_size");
_Static_assert(sizeof(GWeakRef) == sizeof(void *), "GWeakRef");
_Static_assert(sizeof(GType) == sizeof(size_t) && sizeof(gboolean) == sizeof(int), "numbers");
_Static_assert(G_LOG_LEVEL_WARNING == 1 << 4, "G_LOG_LEVEL_WARNING");

int main(void)
{
    return 0;
}
