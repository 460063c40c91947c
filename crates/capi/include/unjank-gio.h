/*
 * unjank-gio.h: a GListModel over a listing of libunjank, for GTK 4 and every
 * program with a GLib main loop.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Header-only: one source file of the program defines UNJANK_GIO_IMPLEMENTATION
 * before it includes this header; all others include it as it is. Compile with
 * $(pkg-config --cflags --libs unjank gio-2.0).
 *
 *     GListModel *rows = unjank_list_model_new("/usr/bin", NULL, NULL);
 *
 * The rows are UnjankItem objects, made when they are asked for and given back
 * when nobody holds them: a view of 500,000 entries has as many as it shows.
 * While the directory is read, and when it changes (UNJANK_FOLLOW), the model
 * emits items-changed; an item whose attributes arrive later than its name
 * emits notify::generation. All of it happens in the main context that was the
 * default of the thread which made the model (g_main_context_push_thread_default()),
 * and belongs to the thread that runs it.
 *
 * No turn of the main loop takes long: a view makes widgets for some 200 rows
 * whatever it shows, so the model gives it a screenful at first and some rows
 * more in each frame. Rows that somebody holds stay where they are while others
 * arrive, and are put into their places some in each frame. What moves is
 * removed and inserted: a selection does not move with it.
 */
#ifndef UNJANK_GIO_H
#define UNJANK_GIO_H

#include <gio/gio.h>
#include <unjank.h>

G_BEGIN_DECLS

#define UNJANK_TYPE_ITEM (unjank_item_get_type())
/** One entry of a directory. Properties: "name" (as UTF-8 for people) and
 *  "generation", which changes when more is known of the entry. */
G_DECLARE_FINAL_TYPE(UnjankItem, unjank_item, UNJANK, ITEM, GObject)

#define UNJANK_TYPE_LIST_MODEL (unjank_list_model_get_type())
/** The rows of a directory, a GListModel of UnjankItem. Properties: "loading" and
 *  "failure", as unjank_list_model_get_failure(). */
G_DECLARE_FINAL_TYPE(UnjankListModel, unjank_list_model, UNJANK, LIST_MODEL, GObject)

/** Lists a directory. options and order may be NULL, as those of
 *  unjank_listing_open() and unjank_model_open(). Returns NULL if there are no
 *  descriptors or threads; unjank_error_text() says so. (transfer full) */
GListModel *unjank_list_model_new(const char *path, const unjank_listing_options *options,
                                  const unjank_model_options *order);

/** Puts the rows in another order, or applies another filter. Many rows are
 *  sorted some in each frame and stay as they are until then; rows that are held
 *  follow in the next frames, if they are many. Returns 0, or an error as
 *  unjank_model_set() does. */
int unjank_list_model_set(UnjankListModel *model, const unjank_model_options *order);

/** Returns whether the directory is still being read for the first time, or
 *  rows are still on the way to their places. */
gboolean unjank_list_model_is_loading(UnjankListModel *model);

/** Returns a negative errno where the directory, or its changes, cannot be read, or
 *  not to the end (-ECONNRESET: the worker or the daemon ended); else 0. The rows
 *  are those that arrived until then. notify::failure says that it changed. */
int unjank_list_model_get_failure(UnjankListModel *model);

/** Returns the id of an item's entry. */
guint32 unjank_item_get_id(UnjankItem *item);

/** Gives what is known of an item's entry now, as unjank_listing_entry(); its
 *  texts are lent until the model is gone. */
int unjank_item_get_entry(UnjankItem *item, unjank_entry *entry);

#ifdef UNJANK_GIO_IMPLEMENTATION

#include <errno.h>
#include <glib-unix.h>
#include <string.h>

/* How long the main loop is held for what arrived, and how long it has for other things then, in microseconds and
 * milliseconds. */
#define UNJANK_GIO_BUDGET 4000
#define UNJANK_GIO_PAUSE 2
/* Rows are put into their places once a frame, so many that a view takes about so long for them, in microseconds. */
#define UNJANK_GIO_FRAME 16000
#define UNJANK_GIO_STEP 3000
/* The first screenful of rows, and the most and the least of a step: of many rows a step is a part. */
#define UNJANK_GIO_FIRST 32
#define UNJANK_GIO_SETTLED 16
#define UNJANK_GIO_PART 16
#define UNJANK_GIO_LEAST 8
/* Rows that a view gets at once while it makes widgets for them. */
#define UNJANK_GIO_GROWTH 12
/* Items that are told in a turn that more is known of them. */
#define UNJANK_GIO_TOLD 24
/* A view that shows one of the first so many rows goes on to show these. */
#define UNJANK_GIO_TOP 256
/* Where more items are held than this it is not by a view. */
#define UNJANK_GIO_HELD 2048
/* While names arrive, rows are put into their places so often, in microseconds. */
#define UNJANK_GIO_SETTLE 200000
/* Names come no more when none came for so long; while they come, a view has the first screenful, but not for longer than
 * this, in microseconds. */
#define UNJANK_GIO_QUIET 60000
#define UNJANK_GIO_PATIENCE 1000000
/* So many frames a view has to look at the first rows. */
#define UNJANK_GIO_UNSEEN 10
#define UNJANK_GIO_NOWHERE G_MAXUINT

/* A row that shows an entry, whatever the order says. */
typedef struct {
    guint row, rank, to;
    guint32 id;
    gboolean kept;
} UnjankPin;

struct _UnjankListModel {
    GObject parent;
    GMainContext *context;
    unjank_listing *listing;
    unjank_model *model;
    /* Rows that were told of, and the most that may be. */
    guint rows, limit;
    /* Rows in which an entry stays though the order has another one there, by row; all other rows have the other entries
     * in their order. None: the rows are in order. */
    GArray *pins;
    /* Where these entries belong, ascending. */
    GArray *ranks;
    int failure, told_failure;
    gboolean reading, loading, ended, unsettled, has_stale, has_changes, reordering;
    /* What the next turn is for: the listing, or the time. There is one of them, none in a turn. */
    GSource *source;
    /* How often rows were arranged: who tells of several ranges ends when a handler had them arranged anew. */
    guint arranged;
    /* Rows of the next step; when the last one was, all rows were in their places, the last and the first names came, in
     * microseconds. */
    guint step, unseen;
    gint64 stepped_at, settled_at, names_at, first_at, followed_at;
    /* The items that somebody holds, by id; not owned. */
    GHashTable *items;
    /* The entries that were wished for, and those that are to be. */
    GHashTable *asked;
    GArray *wanted;
};

struct _UnjankItem {
    GObject parent;
    UnjankListModel *model;
    guint32 id;
    guint row;
    gboolean complete, stale;
    guint generation;
};

enum { UNJANK_ITEM_NAME = 1, UNJANK_ITEM_GENERATION };
enum { UNJANK_LIST_MODEL_LOADING = 1, UNJANK_LIST_MODEL_FAILURE };

G_DEFINE_TYPE(UnjankItem, unjank_item, G_TYPE_OBJECT)

static void unjank_list_model_interface(GListModelInterface *interface);

G_DEFINE_TYPE_WITH_CODE(UnjankListModel, unjank_list_model, G_TYPE_OBJECT,
                        G_IMPLEMENT_INTERFACE(G_TYPE_LIST_MODEL, unjank_list_model_interface))

int unjank_item_get_entry(UnjankItem *item, unjank_entry *entry)
{
    memset(entry, 0, sizeof *entry);
    entry->size = sizeof *entry;
    return unjank_listing_entry(item->model->listing, item->id, entry);
}

guint32 unjank_item_get_id(UnjankItem *item)
{
    return item->id;
}

static void unjank_item_get_property(GObject *object, guint id, GValue *value, GParamSpec *spec)
{
    UnjankItem *item = UNJANK_ITEM(object);
    unjank_entry entry;
    switch (id) {
    case UNJANK_ITEM_NAME:
        if (unjank_item_get_entry(item, &entry) == 0)
            g_value_take_string(value, g_filename_display_name(entry.name));
        break;
    case UNJANK_ITEM_GENERATION:
        g_value_set_uint(value, item->generation);
        break;
    default:
        G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
    }
}

static void unjank_item_dispose(GObject *object)
{
    UnjankItem *item = UNJANK_ITEM(object);
    if (item->model) {
        g_hash_table_remove(item->model->items, GUINT_TO_POINTER(item->id));
        g_clear_object(&item->model);
    }
    G_OBJECT_CLASS(unjank_item_parent_class)->dispose(object);
}

static void unjank_item_class_init(UnjankItemClass *class_)
{
    GObjectClass *object = G_OBJECT_CLASS(class_);
    object->get_property = unjank_item_get_property;
    object->dispose = unjank_item_dispose;
    g_object_class_install_property(
        object, UNJANK_ITEM_NAME,
        g_param_spec_string("name", NULL, NULL, NULL, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
    g_object_class_install_property(
        object, UNJANK_ITEM_GENERATION,
        g_param_spec_uint("generation", NULL, NULL, 0, G_MAXUINT, 0,
                          G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
}

static void unjank_item_init(UnjankItem *item)
{
    (void)item;
}

static GType unjank_list_model_item_type(GListModel *list)
{
    (void)list;
    return UNJANK_TYPE_ITEM;
}

static guint unjank_list_model_n_items(GListModel *list)
{
    return UNJANK_LIST_MODEL(list)->rows;
}

static gint unjank_list_model_compare_pins(gconstpointer a, gconstpointer b)
{
    guint one = ((const UnjankPin *)a)->row, other = ((const UnjankPin *)b)->row;
    return (one > other) - (one < other);
}

static gint unjank_list_model_compare_ranks(gconstpointer a, gconstpointer b)
{
    guint one = *(const guint *)a, other = *(const guint *)b;
    return (one > other) - (one < other);
}

/* Returns the entry in a row. */
static gboolean unjank_list_model_entry(UnjankListModel *model, guint row, guint32 *id)
{
    guint32 given = 0;
    if (model->pins->len) {
        const UnjankPin *pins = (const UnjankPin *)(gpointer)model->pins->data;
        const guint *ranks = (const guint *)(gpointer)model->ranks->data;
        guint low = 0, high = model->pins->len;
        while (low < high) {
            guint middle = (low + high) / 2;
            if (pins[middle].row < row)
                low = middle + 1;
            else
                high = middle;
        }
        if (low < model->pins->len && pins[low].row == row) {
            *id = pins[low].id;
            return TRUE;
        }
        /* The row has the entry with this number among those that are not pinned. */
        guint number = row - low;
        low = 0;
        high = model->ranks->len;
        while (low < high) {
            guint middle = (low + high) / 2;
            if (ranks[middle] - middle <= number)
                low = middle + 1;
            else
                high = middle;
        }
        row = number + low;
    }
    return unjank_model_ids(model->model, row, 1, id, &given) == 0 && given;
}

static gpointer unjank_list_model_item(GListModel *list, guint row)
{
    UnjankListModel *model = UNJANK_LIST_MODEL(list);
    guint32 id;
    if (row >= model->rows || !unjank_list_model_entry(model, row, &id))
        return NULL;
    UnjankItem *item = (UnjankItem *)g_hash_table_lookup(model->items, GUINT_TO_POINTER(id));
    if (item) {
        item->row = row;
        return g_object_ref(item);
    }
    item = (UnjankItem *)g_object_new(UNJANK_TYPE_ITEM, NULL);
    item->row = row;
    item->model = (UnjankListModel *)g_object_ref(model);
    item->id = id;
    unjank_entry entry;
    item->complete = unjank_item_get_entry(item, &entry) == 0 && (entry.fields || entry.error);
    g_hash_table_insert(model->items, GUINT_TO_POINTER(id), item);
    /* What is shown is read before all others, and wished for once. */
    if (!item->complete && model->reading && g_hash_table_add(model->asked, GUINT_TO_POINTER(id)))
        g_array_append_val(model->wanted, id);
    return item;
}

static void unjank_list_model_interface(GListModelInterface *interface)
{
    interface->get_item_type = unjank_list_model_item_type;
    interface->get_n_items = unjank_list_model_n_items;
    interface->get_item = unjank_list_model_item;
}

/* Notes the items of which more may be known; count 0 is all that are not complete. */
static void unjank_list_model_note(UnjankListModel *model, const unjank_event *event)
{
    GHashTableIter iterator;
    gpointer value;
    g_hash_table_iter_init(&iterator, model->items);
    while (!event && g_hash_table_iter_next(&iterator, NULL, &value)) {
        UnjankItem *item = UNJANK_ITEM(value);
        unjank_entry entry;
        if (!item->complete && unjank_item_get_entry(item, &entry) == 0 && (entry.fields || entry.error))
            item->complete = item->stale = model->has_stale = TRUE;
    }
    for (guint at = 0; event && at < event->count; at++) {
        guint32 id = event->ids ? event->ids[at] : event->first + at;
        UnjankItem *item = (UnjankItem *)g_hash_table_lookup(model->items, GUINT_TO_POINTER(id));
        if (item)
            item->complete = item->stale = model->has_stale = TRUE;
    }
}

/* Tells some of these items, so that a frame does not lay out all rows anew. */
static void unjank_list_model_tell_items(UnjankListModel *model)
{
    GHashTableIter iterator;
    gpointer value;
    GPtrArray *told = g_ptr_array_new_with_free_func(g_object_unref);
    g_hash_table_iter_init(&iterator, model->items);
    model->has_stale = FALSE;
    while (!model->has_stale && g_hash_table_iter_next(&iterator, NULL, &value)) {
        UnjankItem *item = UNJANK_ITEM(value);
        if (item->stale && told->len == UNJANK_GIO_TOLD)
            model->has_stale = TRUE;
        else if (item->stale)
            g_ptr_array_add(told, g_object_ref(item));
    }
    for (guint at = 0; at < told->len; at++) {
        UnjankItem *item = UNJANK_ITEM(g_ptr_array_index(told, at));
        item->stale = FALSE;
        item->generation++;
        g_object_notify(G_OBJECT(item), "generation");
    }
    g_ptr_array_unref(told);
}

/* Tells of rows that changed. What is held knows its row, and forgets it where it is gone. */
static void unjank_list_model_emit(UnjankListModel *model, guint row, guint removed, guint added)
{
    GHashTableIter iterator;
    gpointer value;
    g_hash_table_iter_init(&iterator, model->items);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        UnjankItem *item = UNJANK_ITEM(value);
        if (item->row == UNJANK_GIO_NOWHERE || item->row < row)
            continue;
        item->row = item->row - row < removed ? UNJANK_GIO_NOWHERE : item->row - removed + added;
    }
    model->rows = model->rows - removed + added;
    g_list_model_items_changed(G_LIST_MODEL(model), row, removed, added);
}

static guint unjank_list_model_target(UnjankListModel *model)
{
    uint32_t rows = model->rows;
    unjank_model_rows(model->model, &rows);
    return MIN(rows, model->limit);
}

/* Forgets what stays where, and tells of all rows. */
static void unjank_list_model_reset(UnjankListModel *model)
{
    g_array_set_size(model->pins, 0);
    g_array_set_size(model->ranks, 0);
    model->unsettled = FALSE;
    model->arranged++;
    unjank_list_model_emit(model, 0, model->rows, unjank_list_model_target(model));
}

/* Returns the rows that have stayed or are held, by row, with where they belong. */
static GArray *unjank_list_model_held(UnjankListModel *model)
{
    GArray *held = g_array_new(FALSE, FALSE, sizeof(UnjankPin));
    GHashTableIter iterator;
    gpointer value;
    for (guint at = 0; at < model->pins->len; at++) {
        UnjankPin pin = g_array_index(model->pins, UnjankPin, at);
        UnjankItem *item = (UnjankItem *)g_hash_table_lookup(model->items, GUINT_TO_POINTER(pin.id));
        /* Nobody looks at it any more: the row gets what belongs there. */
        pin.kept = FALSE;
        if (!item || item->row != pin.row)
            g_array_append_val(held, pin);
    }
    g_hash_table_iter_init(&iterator, model->items);
    while (g_hash_table_iter_next(&iterator, NULL, &value)) {
        UnjankItem *item = UNJANK_ITEM(value);
        UnjankPin pin = {item->row, 0, 0, item->id, FALSE};
        uint32_t rank;
        if (item->row >= model->rows)
            continue;
        if (unjank_model_row(model->model, item->id, &rank) == 0) {
            pin.rank = rank;
            pin.kept = TRUE;
        }
        g_array_append_val(held, pin);
    }
    g_array_sort(held, unjank_list_model_compare_pins);
    for (guint at = 1; at < held->len;) {
        if (g_array_index(held, UnjankPin, at).row == g_array_index(held, UnjankPin, at - 1).row)
            g_array_remove_index(held, at);
        else
            at++;
    }
    return held;
}

static void unjank_list_model_rank(UnjankListModel *model, const GArray *held)
{
    g_array_set_size(model->ranks, 0);
    for (guint at = 0; at < held->len; at++) {
        const UnjankPin *pin = &g_array_index(held, UnjankPin, at);
        if (pin->kept)
            g_array_append_val(model->ranks, pin->rank);
    }
    g_array_sort(model->ranks, unjank_list_model_compare_ranks);
}

/* Says to which rows the held ones go: those without others between them stay together, and are where most of what
 * comes before them in the order is before them. The first rows stay so. */
static void unjank_list_model_place(UnjankListModel *model, GArray *held, guint rows)
{
    guint others = rows - held->len, before = 0;
    for (guint first = 0, next; first < held->len; first = next) {
        UnjankPin *pins = &g_array_index(held, UnjankPin, 0);
        for (next = first + 1; next < held->len && pins[next].row == pins[next - 1].row + 1;)
            next++;
        const UnjankPin *middle = &pins[(first + next) / 2];
        if (pins[first].row > UNJANK_GIO_TOP && middle->kept) {
            guint low = 0;
            while (low < model->ranks->len && g_array_index(model->ranks, guint, low) < middle->rank)
                low++;
            before = CLAMP(middle->rank - low, before, others);
        } else
            before = CLAMP(pins[first].row - first, before, others);
        for (guint at = first; at < next; at++)
            pins[at].to = before + at;
    }
}

/* Puts rows where `to` says, lets go those that are not kept, and tells of it, range by range: no range has both rows
 * that somebody holds and many others, for a view looks through all of such a range. A handler that has the rows arranged
 * anew begins with what was told up to then, so that nothing is left to be told here. */
static void unjank_list_model_rearrange(UnjankListModel *model, GArray *held, guint rows)
{
    guint arranged = ++model->arranged;
    g_array_set_size(model->pins, 0);
    unjank_list_model_rank(model, held);
    for (guint at = 0; at < held->len; at++)
        if (g_array_index(held, UnjankPin, at).kept)
            g_array_append_val(model->pins, g_array_index(held, UnjankPin, at));
    guint row = 0, done = 0, shift = 0, kept = 0;
    for (guint at = 0; at <= held->len; at++) {
        const UnjankPin *pin = at < held->len ? &g_array_index(held, UnjankPin, at) : NULL;
        guint gap = (pin ? pin->row + shift : model->rows) - row, wanted = (pin ? pin->to : rows) - row;
        /* A difference below 0 wraps, and so does what is added to it. */
        shift += wanted - gap;
        for (guint later = kept; gap != wanted && later < model->pins->len; later++)
            g_array_index(model->pins, UnjankPin, later).row += wanted - gap;
        if (gap || wanted)
            unjank_list_model_emit(model, row, gap, wanted);
        row += wanted;
        if (!pin || model->arranged != arranged)
            break;
        if (pin->kept) {
            kept++;
            row++;
            continue;
        }
        for (done = 1; at + 1 < held->len && !pin[1].kept && pin[1].row == pin->row + 1; done++, at++, pin++) {
        }
        unjank_list_model_emit(model, row, done, done);
        row += done;
        if (model->arranged != arranged)
            break;
    }
}

/* Follows the order after it changed, without a change in the rows that are held. */
static void unjank_list_model_follow(UnjankListModel *model)
{
    unjank_row_change changes[64];
    int count = unjank_model_changes(model->model, changes, G_N_ELEMENTS(changes)), moves = 0;
    unjank_row_change change = {0, 0, 0, 0};
    for (int at = 0; at < count; at++)
        if (changes[at].type != UNJANK_ROWS_UPDATED) {
            change = changes[at];
            moves++;
        }
    if (moves == 0)
        return;
    guint rows = unjank_list_model_target(model);
    /* One change of rows that are in order is told as it is. */
    if (moves == 1 && !model->pins->len && model->limit == G_MAXUINT && change.count <= UNJANK_GIO_FIRST &&
        (change.type == UNJANK_ROWS_INSERTED || change.type == UNJANK_ROWS_REMOVED)) {
        gboolean inserted = change.type == UNJANK_ROWS_INSERTED;
        model->arranged++;
        unjank_list_model_emit(model, change.row, inserted ? 0 : change.count, inserted ? change.count : 0);
        return;
    }
    GArray *held = unjank_list_model_held(model);
    if (held->len > UNJANK_GIO_HELD || held->len > rows) {
        unjank_list_model_reset(model);
    } else {
        unjank_list_model_rank(model, held);
        unjank_list_model_place(model, held, rows);
        model->unsettled = held->len > 0;
        unjank_list_model_rearrange(model, held, rows);
    }
    g_array_unref(held);
}

/* Puts some of the held rows into their places; returns whether there was one to do so with. */
static gboolean unjank_list_model_settle(UnjankListModel *model)
{
    GArray *held = unjank_list_model_held(model);
    guint left = MAX(model->step, held->len / UNJANK_GIO_PART);
    gboolean kept = FALSE;
    if (held->len > UNJANK_GIO_HELD) {
        unjank_list_model_reset(model);
        g_array_unref(held);
        return TRUE;
    }
    for (guint at = 0; at < held->len; at++) {
        UnjankPin *pin = &g_array_index(held, UnjankPin, at);
        pin->to = pin->row;
        kept |= !pin->kept;
    }
    for (guint at = 0; at < held->len && left; at++) {
        UnjankPin *pin = &g_array_index(held, UnjankPin, at);
        if (pin->kept && pin->rank == pin->row)
            continue;
        left--;
        /* The one that belongs here, if it stays elsewhere, goes with it. */
        for (guint other = 0; other < held->len; other++) {
            UnjankPin *belongs = &g_array_index(held, UnjankPin, other);
            if (belongs->kept && belongs->rank == pin->row)
                belongs->kept = FALSE;
        }
        pin->kept = FALSE;
        kept = TRUE;
    }
    if (kept) {
        unjank_list_model_rearrange(model, held, model->rows);
    } else {
        g_array_set_size(model->pins, 0);
        g_array_set_size(model->ranks, 0);
        model->unsettled = FALSE;
    }
    g_array_unref(held);
    return kept;
}

/* Has the view do its part of a frame: puts rows into their places or gives it more of them. */
static void unjank_list_model_step(UnjankListModel *model)
{
    gint64 begun = g_get_monotonic_time();
    guint rows = model->rows;
    /* Each frame after a change costs a view the more the more rows it has, and names that still come change them again. */
    gboolean is_quiet = !model->reading || begun - model->names_at > UNJANK_GIO_QUIET;
    if (model->unsettled && (is_quiet || begun - model->settled_at > UNJANK_GIO_SETTLE)) {
        unjank_list_model_settle(model);
        if (!model->unsettled)
            model->settled_at = g_get_monotonic_time();
    } else if (model->limit != G_MAXUINT && rows == model->limit &&
               (is_quiet || begun - model->first_at > UNJANK_GIO_PATIENCE)) {
        /* A view that did not ask for the last rows has as many as it wants. One that asked for none is perhaps not there
         * yet. */
        guint held = g_hash_table_size(model->items);
        gboolean is_full = held ? held < rows : ++model->unseen > UNJANK_GIO_UNSEEN;
        if (!held && !is_full) {
            model->stepped_at = begun;
            return;
        }
        /* A view makes its widgets when it is laid out; who holds more than a view does it at once. */
        model->limit = is_full ? G_MAXUINT : rows < UNJANK_GIO_TOP * 2 ? rows + UNJANK_GIO_GROWTH : rows + rows;
        guint wanted = unjank_list_model_target(model);
        if (wanted > rows)
            unjank_list_model_emit(model, rows, 0, wanted - rows);
        model->stepped_at = g_get_monotonic_time();
        return;
    } else
        return;
    gint64 took = g_get_monotonic_time() - begun;
    if (took > UNJANK_GIO_STEP)
        model->step = MAX(model->step / 2, UNJANK_GIO_LEAST);
    else if (took < UNJANK_GIO_STEP / 2)
        model->step = MIN(model->step * 2, UNJANK_GIO_SETTLED);
    model->stepped_at = g_get_monotonic_time();
}

/* Shows the rows in another order. The rows of one screen go to their places at once. */
static void unjank_list_model_reordered(UnjankListModel *model)
{
    unjank_list_model_follow(model);
    if (model->unsettled && g_hash_table_size(model->items) <= UNJANK_GIO_FIRST) {
        guint step = model->step;
        model->step = UNJANK_GIO_HELD;
        unjank_list_model_settle(model);
        model->step = step;
    }
}

/* Takes what arrived, for a part of a frame; returns whether there is more. */
static gboolean unjank_list_model_take(UnjankListModel *model)
{
    unjank_event event;
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    gint64 end = g_get_monotonic_time() + UNJANK_GIO_BUDGET;
    gboolean has_attributes = FALSE, has_rows = FALSE;
    int more;
    do {
        more = unjank_listing_next(model->listing, 0, &event);
        has_rows |= more > 0 && event.type != UNJANK_DONE;
        if (more > 0 && (event.type == UNJANK_NAMES || event.type == UNJANK_SORTED))
            model->names_at = g_get_monotonic_time();
        if (more > 0 && !model->first_at)
            model->first_at = model->settled_at = g_get_monotonic_time();
        if (more > 0 && event.type == UNJANK_ATTRIBUTES) {
            has_attributes |= model->reading;
            if (!model->reading)
                unjank_list_model_note(model, &event);
        }
        /* Changes that others make on a network file system are not told; that is no failure of the rows. */
        if (more > 0 && event.type == UNJANK_FAILED &&
            !(event.step == UNJANK_STEP_FOLLOW && event.error == -EOPNOTSUPP))
            model->failure = event.error;
        /* Whoever reads is gone: the rows are not all of the directory, or no changes follow. */
        if (more < 0)
            model->failure = more;
        if (more < 0 || (more > 0 && event.type == UNJANK_DONE))
            model->reading = FALSE;
    } while (more > 0 && g_get_monotonic_time() < end);
    model->ended = more < 0;
    model->has_changes |= has_rows;
    /* A view lays all its rows out anew after each change, so many changes are told as one. */
    gint64 since = g_get_monotonic_time() - model->followed_at;
    if (model->reordering && more <= 0) {
        model->reordering = model->has_changes = FALSE;
        unjank_list_model_reordered(model);
    }
    if (model->has_changes && (!model->reading || model->limit != G_MAXUINT || since > UNJANK_GIO_SETTLE / 2)) {
        model->has_changes = FALSE;
        unjank_list_model_follow(model);
        model->followed_at = g_get_monotonic_time();
    }
    if (has_attributes)
        unjank_list_model_note(model, NULL);
    return more > 0;
}

static gboolean unjank_list_model_ready(gint fd, GIOCondition condition, gpointer data);
static gboolean unjank_list_model_go_on(gpointer data);

/* Ends what waits for the next turn. */
static void unjank_list_model_unschedule(UnjankListModel *model)
{
    if (!model->source)
        return;
    g_source_destroy(model->source);
    g_clear_pointer(&model->source, g_source_unref);
}

/* Has the next turn come from this source, and from no other. */
static void unjank_list_model_schedule(UnjankListModel *model, GSource *source, GSourceFunc callback)
{
    /* A handler may have chosen another order in this turn, or run the main loop. */
    unjank_list_model_unschedule(model);
    g_source_set_callback(source, callback, model, NULL);
    g_source_attach(source, model->context);
    model->source = source;
}

static void unjank_list_model_schedule_after(UnjankListModel *model, guint milliseconds)
{
    unjank_list_model_schedule(model, g_timeout_source_new(milliseconds), unjank_list_model_go_on);
}

static void unjank_list_model_schedule_ready(UnjankListModel *model)
{
    GSource *source = g_unix_fd_source_new(unjank_listing_fd(model->listing), G_IO_IN);
    unjank_list_model_schedule(model, source, G_SOURCE_FUNC(unjank_list_model_ready));
}

/* One turn of the main loop. */
static void unjank_list_model_turn(UnjankListModel *model)
{
    g_object_ref(model);
    gboolean more = !model->ended && unjank_list_model_take(model);
    if (g_get_monotonic_time() - model->stepped_at >= UNJANK_GIO_FRAME) {
        unjank_list_model_step(model);
        if (model->has_stale)
            unjank_list_model_tell_items(model);
    }
    if (model->wanted->len && model->reading)
        unjank_listing_want(model->listing, (const uint32_t *)(gpointer)model->wanted->data, model->wanted->len);
    g_array_set_size(model->wanted, 0);
    gboolean loading = model->reading || model->unsettled || model->has_changes || model->rows == model->limit;
    if (!model->reading)
        g_hash_table_remove_all(model->asked);
    if (more || model->unsettled || model->has_stale || model->has_changes || model->rows == model->limit)
        unjank_list_model_schedule_after(model, more ? UNJANK_GIO_PAUSE : UNJANK_GIO_FRAME / 1000);
    else if (model->reordering)
        unjank_list_model_schedule_after(model, 0);
    else if (!model->ended)
        unjank_list_model_schedule_ready(model);
    else
        unjank_list_model_unschedule(model);
    if (model->failure != model->told_failure) {
        model->told_failure = model->failure;
        g_object_notify(G_OBJECT(model), "failure");
    }
    if (loading != model->loading) {
        model->loading = loading;
        g_object_notify(G_OBJECT(model), "loading");
    }
    g_object_unref(model);
}

static gboolean unjank_list_model_go_on(gpointer data)
{
    UnjankListModel *model = UNJANK_LIST_MODEL(data);
    unjank_list_model_unschedule(model);
    unjank_list_model_turn(model);
    return G_SOURCE_REMOVE;
}

static gboolean unjank_list_model_ready(gint fd, GIOCondition condition, gpointer data)
{
    (void)fd;
    (void)condition;
    UnjankListModel *model = UNJANK_LIST_MODEL(data);
    /* What was received already does not show at the descriptor: it is watched again when nothing is left. */
    unjank_list_model_unschedule(model);
    unjank_list_model_turn(model);
    return G_SOURCE_REMOVE;
}

static void unjank_list_model_get_property(GObject *object, guint id, GValue *value,
                                           GParamSpec *spec)
{
    if (id == UNJANK_LIST_MODEL_LOADING)
        g_value_set_boolean(value, UNJANK_LIST_MODEL(object)->loading);
    else if (id == UNJANK_LIST_MODEL_FAILURE)
        g_value_set_int(value, UNJANK_LIST_MODEL(object)->failure);
    else
        G_OBJECT_WARN_INVALID_PROPERTY_ID(object, id, spec);
}

static void unjank_list_model_finalize(GObject *object)
{
    UnjankListModel *model = UNJANK_LIST_MODEL(object);
    unjank_list_model_unschedule(model);
    g_main_context_unref(model->context);
    /* Where one could not be opened, its failure stays the last one. */
    if (model->model)
        unjank_model_close(model->model);
    if (model->listing)
        unjank_listing_close(model->listing);
    g_hash_table_unref(model->items);
    g_hash_table_unref(model->asked);
    g_array_unref(model->wanted);
    g_array_unref(model->pins);
    g_array_unref(model->ranks);
    G_OBJECT_CLASS(unjank_list_model_parent_class)->finalize(object);
}

static void unjank_list_model_class_init(UnjankListModelClass *class_)
{
    GObjectClass *object = G_OBJECT_CLASS(class_);
    object->get_property = unjank_list_model_get_property;
    object->finalize = unjank_list_model_finalize;
    g_object_class_install_property(
        object, UNJANK_LIST_MODEL_LOADING,
        g_param_spec_boolean("loading", NULL, NULL, FALSE, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
    g_object_class_install_property(
        object, UNJANK_LIST_MODEL_FAILURE,
        g_param_spec_int("failure", NULL, NULL, G_MININT, 0, 0, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
}

static void unjank_list_model_init(UnjankListModel *model)
{
    model->context = g_main_context_ref_thread_default();
    model->items = g_hash_table_new(NULL, NULL);
    model->asked = g_hash_table_new(NULL, NULL);
    model->wanted = g_array_new(FALSE, FALSE, sizeof(guint32));
    model->pins = g_array_new(FALSE, FALSE, sizeof(UnjankPin));
    model->ranks = g_array_new(FALSE, FALSE, sizeof(guint));
    model->loading = model->reading = TRUE;
    model->limit = UNJANK_GIO_FIRST;
    model->step = UNJANK_GIO_FIRST / 2;
}

GListModel *unjank_list_model_new(const char *path, const unjank_listing_options *options,
                                  const unjank_model_options *order)
{
    UnjankListModel *model = (UnjankListModel *)g_object_new(UNJANK_TYPE_LIST_MODEL, NULL);
    if (unjank_listing_open(path, options, &model->listing) < 0 ||
        unjank_model_open(model->listing, order, &model->model) < 0) {
        g_object_unref(model);
        return NULL;
    }
    unjank_list_model_schedule_ready(model);
    return G_LIST_MODEL(model);
}

int unjank_list_model_set(UnjankListModel *model, const unjank_model_options *order)
{
    unjank_model_options options = {sizeof options, 0, 0, NULL, NULL};
    if (order && order->size < sizeof options)
        return -EINVAL;
    if (order)
        options = *order;
    options.flags |= UNJANK_IN_SLICES;
    int set = unjank_model_set(model->model, &options);
    if (set < 0)
        return set;
    /* A handler of what is told here may give the model back. */
    g_object_ref(model);
    model->reordering = set > 0;
    if (model->reordering)
        model->ended = FALSE;
    else
        unjank_list_model_reordered(model);
    unjank_list_model_schedule_after(model, 0);
    g_object_unref(model);
    return 0;
}

gboolean unjank_list_model_is_loading(UnjankListModel *model)
{
    return model->loading || model->unsettled || model->reordering;
}

int unjank_list_model_get_failure(UnjankListModel *model)
{
    return model->failure;
}

#endif /* UNJANK_GIO_IMPLEMENTATION */

G_END_DECLS

#endif /* UNJANK_GIO_H */
