/*
 * unjank-gi.c: what unjank-gi.h declares, with the annotations that g-ir-scanner
 * reads (crates/capi/gir/build).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define UNJANK_GIO_IMPLEMENTATION
#include "unjank-gi.h"

#include <dirent.h>
#include <sys/stat.h>

/**
 * UnjankListModel:
 *
 * The rows of a directory: a #GListModel of #UnjankItem.
 *
 * All of it happens in the main context that was the default of the thread which made it.
 */

/**
 * UnjankItem:
 *
 * One entry of a directory. An item whose attributes arrive emits `notify::generation`.
 */

/**
 * unjank_list_model_new: (skip)
 */

/**
 * unjank_list_model_set: (skip)
 */

/**
 * unjank_list_model_get_failure: (skip)
 */

/**
 * unjank_item_get_entry: (skip)
 */

/**
 * unjank_list_model_is_loading:
 * @model: a model
 *
 * Returns: whether the directory is still being read, or rows are on the way to their places
 */

/**
 * unjank_item_get_id:
 * @item: an item
 *
 * Returns: the number of the entry in its listing; it stays when the entry is renamed
 */

/* Says with a GError what the library said last; `code` is a negative errno. */
static void unjank_gi_fail(GError **error, int code, const char *text)
{
    g_set_error_literal(error, G_IO_ERROR, g_io_error_from_errno(-code), text);
}

/**
 * unjank_list_model_open: (constructor)
 * @path: (type filename): a directory
 * @flags: how it is listed
 * @error: where an error is put
 *
 * Begins to list a directory. Nothing is waited for: whether it can be read is known when
 * `loading` has become false, and unjank_list_model_check() says it.
 *
 * Returns: (transfer full): the model; an error if there are no descriptors or threads
 */
UnjankListModel *unjank_list_model_open(const char *path, UnjankListFlags flags, GError **error)
{
    unjank_listing_options options = {.size = sizeof options, .fields = UNJANK_DEFAULT_FIELDS};
    options.flags = flags & (UNJANK_FOLLOW | UNJANK_DAEMON | UNJANK_WORKER);
    if (flags & UNJANK_LIST_FLAGS_CONTENT_TYPES)
        options.fields |= UNJANK_MIME_TYPE;
    unjank_model_options order = {.size = sizeof order};
    if (flags & UNJANK_LIST_FLAGS_HIDDEN)
        order.flags = UNJANK_SHOW_HIDDEN;
    GListModel *model = unjank_list_model_new(path, &options, &order);
    if (!model)
        unjank_gi_fail(error, -EIO, unjank_error_text());
    return model ? UNJANK_LIST_MODEL(model) : NULL;
}

/**
 * unjank_list_model_order_by:
 * @model: a model
 * @by: what rows are sorted by
 * @flags: which rows there are, and which come first
 * @filter: (nullable): a text that names must contain, or a glob
 * @error: where an error is put
 *
 * Puts the rows in another order. Many rows are sorted some in each frame.
 *
 * Returns: whether the order is taken
 */
gboolean unjank_list_model_order_by(UnjankListModel *model, UnjankOrder by, UnjankOrderFlags flags,
                                    const char *filter, GError **error)
{
    unjank_model_options order = {.size = sizeof order, .by = by, .flags = flags, .filter = filter};
    int set = unjank_list_model_set(model, &order);
    if (set < 0)
        unjank_gi_fail(error, set, unjank_error_text());
    return set >= 0;
}

/**
 * unjank_list_model_check:
 * @model: a model
 * @error: where an error is put
 *
 * Returns: %FALSE and an error if the directory could not be read, or not to its end, or its
 *   changes cannot be followed
 */
gboolean unjank_list_model_check(UnjankListModel *model, GError **error)
{
    int failure = unjank_list_model_get_failure(model);
    if (failure < 0)
        unjank_gi_fail(error, failure, g_strerror(-failure));
    return failure >= 0;
}

/**
 * unjank_item_dup_name:
 * @item: an item
 *
 * Returns: (transfer full) (nullable): the name as UTF-8, for people
 */
char *unjank_item_dup_name(UnjankItem *item)
{
    unjank_entry entry;
    return unjank_item_get_entry(item, &entry) == 0 ? g_filename_display_name(entry.name) : NULL;
}

/**
 * unjank_item_dup_file_name:
 * @item: an item
 *
 * Returns: (transfer full) (nullable) (type filename): the name as the file system has it
 */
char *unjank_item_dup_file_name(UnjankItem *item)
{
    unjank_entry entry;
    return unjank_item_get_entry(item, &entry) == 0 ? g_strdup(entry.name) : NULL;
}

/**
 * unjank_item_is_known:
 * @item: an item
 *
 * Returns: whether the attributes of the entry have arrived
 */
gboolean unjank_item_is_known(UnjankItem *item)
{
    unjank_entry entry;
    return unjank_item_get_entry(item, &entry) == 0 && entry.fields;
}

/**
 * unjank_item_is_directory:
 * @item: an item
 *
 * Returns: whether the entry is a directory, or a link that leads to one
 */
gboolean unjank_item_is_directory(UnjankItem *item)
{
    unjank_entry entry;
    return unjank_item_get_entry(item, &entry) == 0 && (entry.type == DT_DIR || S_ISDIR(entry.target_mode));
}

/**
 * unjank_item_get_size:
 * @item: an item
 *
 * Returns: the length in bytes; 0 while it is not known
 */
guint64 unjank_item_get_size(UnjankItem *item)
{
    unjank_entry entry;
    return unjank_item_get_entry(item, &entry) == 0 ? entry.bytes : 0;
}

/**
 * unjank_item_get_mode:
 * @item: an item
 *
 * Returns: type and permissions, as `st_mode`; 0 while they are not known
 */
guint unjank_item_get_mode(UnjankItem *item)
{
    unjank_entry entry;
    return unjank_item_get_entry(item, &entry) == 0 ? entry.mode : 0;
}

/**
 * unjank_item_get_modified:
 * @item: an item
 *
 * Returns: when the contents changed, in microseconds since 1970; -1 while it is not known
 */
gint64 unjank_item_get_modified(UnjankItem *item)
{
    unjank_entry entry;
    if (unjank_item_get_entry(item, &entry) != 0 || !entry.modified.known)
        return -1;
    return entry.modified.seconds * G_USEC_PER_SEC + entry.modified.nanoseconds / 1000;
}

/**
 * unjank_item_dup_content_type:
 * @item: an item
 *
 * Returns: (transfer full) (nullable): the MIME type by name, where
 *   %UNJANK_LIST_FLAGS_CONTENT_TYPES asked for it and it is known
 */
char *unjank_item_dup_content_type(UnjankItem *item)
{
    unjank_entry entry;
    const char *text;
    size_t length;
    if (unjank_item_get_entry(item, &entry) != 0 || !entry.mime_type ||
        unjank_listing_text(item->model->listing, entry.mime_type, &text, &length) != 0)
        return NULL;
    return g_strndup(text, length);
}
