/*
 * unjank-gi.h: the list model of unjank-gio.h for languages that reach C by
 * GObject introspection (JavaScript in GJS, Python in PyGObject, Vala and others).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Programs in C include unjank-gio.h and need none of this.
 */
#ifndef UNJANK_GI_H
#define UNJANK_GI_H

#include <gio/gio.h>
#include <unjank-gio.h>

G_BEGIN_DECLS

/**
 * UnjankListFlags:
 * @UNJANK_LIST_FLAGS_NONE: names and the attributes of `stat`, read once
 * @UNJANK_LIST_FLAGS_FOLLOW: changes of the directory arrive after it was read
 * @UNJANK_LIST_FLAGS_DAEMON: the daemon of the session is asked first
 * @UNJANK_LIST_FLAGS_WORKER: a worker process reads, which a file system that hangs may stop
 * @UNJANK_LIST_FLAGS_CONTENT_TYPES: MIME types by name, too
 * @UNJANK_LIST_FLAGS_HIDDEN: names with a dot at their begin, too
 *
 * How a directory is listed.
 */
typedef enum {
    UNJANK_LIST_FLAGS_NONE = 0,
    UNJANK_LIST_FLAGS_FOLLOW = 1 << 0,
    UNJANK_LIST_FLAGS_DAEMON = 1 << 1,
    UNJANK_LIST_FLAGS_WORKER = 1 << 2,
    UNJANK_LIST_FLAGS_CONTENT_TYPES = 1 << 3,
    UNJANK_LIST_FLAGS_HIDDEN = 1 << 4
} UnjankListFlags;

/**
 * UnjankOrder:
 * @UNJANK_ORDER_NAME: by name, as people of this language expect it
 * @UNJANK_ORDER_SIZE: by length
 * @UNJANK_ORDER_MODIFIED: by the time at which the contents changed
 * @UNJANK_ORDER_ACCESSED: by the time at which it was read
 * @UNJANK_ORDER_CHANGED: by the time at which contents or attributes changed
 * @UNJANK_ORDER_BORN: by the time at which it was made
 * @UNJANK_ORDER_TYPE: by type
 * @UNJANK_ORDER_EXTENSION: by what stands behind the last dot
 * @UNJANK_ORDER_ARRIVAL: as the file system gave the names
 *
 * What rows are sorted by.
 */
typedef enum {
    UNJANK_ORDER_NAME = 0,
    UNJANK_ORDER_SIZE = 1,
    UNJANK_ORDER_MODIFIED = 2,
    UNJANK_ORDER_ACCESSED = 3,
    UNJANK_ORDER_CHANGED = 4,
    UNJANK_ORDER_BORN = 5,
    UNJANK_ORDER_TYPE = 6,
    UNJANK_ORDER_EXTENSION = 7,
    UNJANK_ORDER_ARRIVAL = 8
} UnjankOrder;

/**
 * UnjankOrderFlags:
 * @UNJANK_ORDER_FLAGS_NONE: ascending, directories first, hidden names left out
 * @UNJANK_ORDER_FLAGS_DESCENDING: the largest first
 * @UNJANK_ORDER_FLAGS_DIRECTORIES_MIXED: directories among the others
 * @UNJANK_ORDER_FLAGS_HIDDEN: names with a dot at their begin, too
 * @UNJANK_ORDER_FLAGS_MATCH_CASE: the filter tells a from A
 * @UNJANK_ORDER_FLAGS_GLOB: the filter is a glob and no text
 *
 * Which rows there are, and which come first.
 */
typedef enum {
    UNJANK_ORDER_FLAGS_NONE = 0,
    UNJANK_ORDER_FLAGS_DESCENDING = 1 << 0,
    UNJANK_ORDER_FLAGS_DIRECTORIES_MIXED = 1 << 1,
    UNJANK_ORDER_FLAGS_HIDDEN = 1 << 2,
    UNJANK_ORDER_FLAGS_MATCH_CASE = 1 << 3,
    UNJANK_ORDER_FLAGS_GLOB = 1 << 4
} UnjankOrderFlags;

UnjankListModel *unjank_list_model_open(const char *path, UnjankListFlags flags, GError **error);
gboolean unjank_list_model_order_by(UnjankListModel *model, UnjankOrder by, UnjankOrderFlags flags,
                                    const char *filter, GError **error);
gboolean unjank_list_model_check(UnjankListModel *model, GError **error);

char *unjank_item_dup_name(UnjankItem *item);
char *unjank_item_dup_file_name(UnjankItem *item);
gboolean unjank_item_is_known(UnjankItem *item);
gboolean unjank_item_is_directory(UnjankItem *item);
guint64 unjank_item_get_size(UnjankItem *item);
guint unjank_item_get_mode(UnjankItem *item);
gint64 unjank_item_get_modified(UnjankItem *item);
char *unjank_item_dup_content_type(UnjankItem *item);

G_END_DECLS

#endif /* UNJANK_GI_H */
