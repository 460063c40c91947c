/* Uses the GListModel of unjank-gio.h in a main loop. Run as: gio DIRECTORY (of 300 files) */
#define UNJANK_GIO_IMPLEMENTATION
#include <unjank-gio.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <utime.h>

#include "check.h"

static guint told, told_items;
/* The entries of a range of rows that somebody holds, as a view holds its widgets, by what the signals say. */
#define SHOWN 40
static gpointer held[SHOWN];
static guint held_from;

static void hold(GListModel *rows, guint from)
{
    for (guint at = 0; at < SHOWN; at++) {
        gpointer before = held[at];
        held[at] = g_list_model_get_item(rows, from + at);
        g_clear_object(&before);
    }
    held_from = from;
}

/* What is held is what the model has in its row, so that no change is kept from a view. */
static void check_held(GListModel *rows)
{
    for (guint at = 0; at < SHOWN; at++) {
        gpointer now = g_list_model_get_item(rows, held_from + at);
        CHECK(now == held[at]);
        g_clear_object(&now);
    }
}

/* The rows as the signals say: what a view believes. */
static void rows_changed(GListModel *rows, guint at, guint removed, guint added, gpointer viewed)
{
    CHECK(at + removed <= told);
    told = told - removed + added;
    CHECK(told == g_list_model_get_n_items(rows));
    if (!viewed)
        return;
    /* A view keeps to what it shows: rows that come or go before that move it. */
    if (at + removed <= held_from && at < held_from)
        held_from = held_from - removed + added;
    else if (at < held_from + SHOWN)
        hold(rows, held_from);
}

static void item_changed(GObject *item, GParamSpec *spec, gpointer unused)
{
    (void)item;
    (void)spec;
    (void)unused;
    told_items++;
}

static void wait_for(GListModel *rows, guint count)
{
    gint64 end = g_get_monotonic_time() + 30 * G_TIME_SPAN_SECOND;
    while (g_list_model_get_n_items(rows) != count || unjank_list_model_is_loading(UNJANK_LIST_MODEL(rows))) {
        CHECK(g_get_monotonic_time() < end);
        g_main_context_iteration(NULL, TRUE);
    }
}

/* The rows are in order at the end, and what a view shows was true at all times. */
static void check_order(const char *path, guint count, guint from)
{
    unjank_listing_options options = {.size = sizeof options, .fields = UNJANK_SIZE, .flags = UNJANK_FOLLOW};
    unjank_model_options order = {.size = sizeof order, .locale = "C"};
    GListModel *rows = unjank_list_model_new(path, &options, &order);
    told = 0;
    g_signal_connect(rows, "items-changed", G_CALLBACK(rows_changed), rows);
    gint64 end = g_get_monotonic_time() + 60 * G_TIME_SPAN_SECOND;
    do {
        CHECK(g_get_monotonic_time() < end);
        g_main_context_iteration(NULL, TRUE);
        if (held_from == 0 && from && told > from + SHOWN)
            hold(rows, from);
        check_held(rows);
    } while (told != count || unjank_list_model_is_loading(UNJANK_LIST_MODEL(rows)));
    for (guint round = 0; round < 3; round++) {
        char *last = NULL;
        for (guint at = 0; at < count; at++) {
            char *name;
            gpointer item = g_list_model_get_item(rows, at);
            g_object_get(item, "name", &name, NULL);
            g_object_unref(item);
            CHECK(!last || (round == 1 ? strcmp(last, name) > 0 : strcmp(last, name) < 0));
            g_free(last);
            last = name;
        }
        g_free(last);
        order.flags ^= UNJANK_DESCENDING;
        CHECK(unjank_list_model_set(UNJANK_LIST_MODEL(rows), &order) == 0);
        check_held(rows);
        while (unjank_list_model_is_loading(UNJANK_LIST_MODEL(rows))) {
            CHECK(g_get_monotonic_time() < end);
            g_main_context_iteration(NULL, TRUE);
            check_held(rows);
        }
    }
    for (guint at = 0; at < SHOWN; at++)
        g_clear_object(&held[at]);
    held_from = 0;
    g_object_unref(rows);
    told = 0;
}

/* A handler chooses another order, so often; each is the other way round than the one before, and has more or fewer rows. */
static guint orders_left;
static unjank_model_options chosen = {.size = sizeof chosen, .locale = "C"};

static void choose_order(UnjankListModel *model)
{
    if (orders_left == 0)
        return;
    orders_left--;
    chosen.flags ^= UNJANK_DESCENDING;
    chosen.filter = orders_left % 2 ? "1" : NULL;
    CHECK(unjank_list_model_set(model, &chosen) == 0);
}

static void choose_order_for_rows(GListModel *rows, guint at, guint removed, guint added, gpointer unused)
{
    (void)at;
    (void)removed;
    (void)added;
    (void)unused;
    choose_order(UNJANK_LIST_MODEL(rows));
}

static void choose_order_for_loading(GObject *rows, GParamSpec *spec, gpointer unused)
{
    (void)spec;
    (void)unused;
    choose_order(UNJANK_LIST_MODEL(rows));
}

static void choose_order_for_item(GObject *item, GParamSpec *spec, gpointer rows)
{
    (void)item;
    (void)spec;
    choose_order(UNJANK_LIST_MODEL(rows));
}

static void give_back(GListModel *rows, guint at, guint removed, guint added, gpointer once)
{
    (void)at;
    (void)removed;
    (void)added;
    g_signal_handlers_disconnect_by_data(rows, once);
    g_object_unref(rows);
}

static GListModel *open_rows(const char *path)
{
    unjank_listing_options options = {.size = sizeof options, .fields = UNJANK_SIZE, .flags = UNJANK_FOLLOW};
    chosen.flags = 0;
    chosen.filter = NULL;
    told = 0;
    return unjank_list_model_new(path, &options, &chosen);
}

/* Nothing is left in the main loop that would use a model which is gone. */
static void check_gone(gconstpointer rows)
{
    CHECK(g_main_context_find_source_by_user_data(NULL, (gpointer)rows) == NULL);
}

/* Handlers may choose another order in every signal, while other rows are being told of, too. */
static void check_orders_in_handlers(const char *path, guint count)
{
    static const char *const signals[] = {"items-changed", "notify::loading", "notify::generation"};
    static const GCallback handlers[] = {G_CALLBACK(choose_order_for_rows), G_CALLBACK(choose_order_for_loading),
                                         G_CALLBACK(choose_order_for_item)};
    for (guint at = 0; at < G_N_ELEMENTS(signals); at++) {
        GListModel *rows = open_rows(path);
        gpointer item = NULL;
        orders_left = 3;
        if (at == 2) {
            wait_for(rows, count);
            item = g_list_model_get_item(rows, 0);
            g_signal_connect(item, signals[at], handlers[at], rows);
            char *first = g_build_filename(path, "file 0", NULL);
            CHECK(utime(first, NULL) == 0);
            g_free(first);
        } else
            g_signal_connect(rows, signals[at], handlers[at], NULL);
        while (orders_left == 3)
            g_main_context_iteration(NULL, TRUE);
        g_clear_object(&item);
        g_object_unref(rows);
        check_gone(rows);
    }
    /* In the middle of what another order has moved, and in the middle of that. */
    for (guint from = 0; from + SHOWN < count; from += 50) {
        GListModel *rows = open_rows(path);
        wait_for(rows, count);
        told = count;
        hold(rows, from);
        g_signal_connect(rows, "items-changed", G_CALLBACK(rows_changed), rows);
        g_signal_connect(rows, "items-changed", handlers[0], NULL);
        orders_left = 4;
        choose_order(UNJANK_LIST_MODEL(rows));
        check_held(rows);
        while (unjank_list_model_is_loading(UNJANK_LIST_MODEL(rows))) {
            g_main_context_iteration(NULL, TRUE);
            check_held(rows);
        }
        CHECK(orders_left == 0 && told == count);
        for (guint row = 0; row < SHOWN; row++)
            g_clear_object(&held[row]);
        char *last = NULL;
        for (guint row = 0; row < count; row++) {
            char *name;
            gpointer item = g_list_model_get_item(rows, row);
            g_object_get(item, "name", &name, NULL);
            g_object_unref(item);
            /* The fourth is the first one again. */
            CHECK(!last || strcmp(last, name) < 0);
            g_free(last);
            last = name;
        }
        g_free(last);
        g_object_unref(rows);
        check_gone(rows);
    }
    held_from = 0;
    /* The last reference may be given back by a handler. */
    GListModel *rows = open_rows(path);
    wait_for(rows, count);
    g_signal_connect(rows, "items-changed", G_CALLBACK(give_back), &chosen);
    orders_left = 1;
    choose_order(UNJANK_LIST_MODEL(rows));
    check_gone(rows);
    told = 0;
}

/* A thread that has a main context of its own gets the rows there, and none are left to the main loop of the program. */
static gpointer list_in_context(gpointer path)
{
    GMainContext *own = g_main_context_new();
    g_main_context_push_thread_default(own);
    GListModel *rows = open_rows((const char *)path);
    check_gone(rows);
    CHECK(g_main_context_find_source_by_user_data(own, rows) != NULL);
    chosen.flags = UNJANK_DESCENDING;
    for (int round = 0; round < 2; round++) {
        while (unjank_list_model_is_loading(UNJANK_LIST_MODEL(rows)) || g_list_model_get_n_items(rows) != 300)
            g_main_context_iteration(own, TRUE);
        CHECK(unjank_list_model_set(UNJANK_LIST_MODEL(rows), &chosen) == 0);
        check_gone(rows);
    }
    g_object_unref(rows);
    CHECK(g_main_context_find_source_by_user_data(own, rows) == NULL);
    g_main_context_pop_thread_default(own);
    g_main_context_unref(own);
    return NULL;
}

static void failure_changed(GObject *rows, GParamSpec *spec, gpointer failures)
{
    int failure;
    (void)spec;
    g_object_get(rows, "failure", &failure, NULL);
    CHECK(failure < 0 && failure == unjank_list_model_get_failure(UNJANK_LIST_MODEL(rows)));
    ++*(guint *)failures;
}

/* What arrived before the worker ended is not the whole directory, and says so. */
static void check_worker_that_ends(const char *path)
{
    guint failures = 0;
    char *worker = g_strconcat(path, ".worker", NULL);
    CHECK(g_file_set_contents(worker, "#!/bin/sh\nhead -c 1 >/dev/null\n", -1, NULL) && chmod(worker, 0700) == 0);
    unjank_listing_options options = {.size = sizeof options, .flags = UNJANK_WORKER, .worker = worker};
    GListModel *rows = unjank_list_model_new(path, &options, NULL);
    g_signal_connect(rows, "notify::failure", G_CALLBACK(failure_changed), &failures);
    wait_for(rows, 0);
    CHECK(failures == 1 && unjank_list_model_get_failure(UNJANK_LIST_MODEL(rows)) == -ECONNRESET);
    /* Another order does not make it whole. */
    CHECK(unjank_list_model_set(UNJANK_LIST_MODEL(rows), &chosen) == 0);
    wait_for(rows, 0);
    CHECK(failures == 1 && unjank_list_model_get_failure(UNJANK_LIST_MODEL(rows)) == -ECONNRESET);
    g_object_unref(rows);
    g_free(worker);
}

int main(int count, char **arguments)
{
    CHECK(count == 2 || count == 4);
    if (count == 4) {
        check_order(arguments[1], (guint)atoi(arguments[2]), (guint)atoi(arguments[3]));
        puts("good");
        return 0;
    }
    /* Why there is no model is the last failure. */
    char *too_long = g_strnfill(5000, 'x');
    CHECK(unjank_list_model_new(too_long, NULL, NULL) == NULL);
    CHECK(strstr(unjank_error_text(), "4095 bytes"));
    g_free(too_long);
    /* A directory that is missing is not an empty one. */
    GListModel *missing = unjank_list_model_new("/nothing/here", NULL, NULL);
    wait_for(missing, 0);
    CHECK(unjank_list_model_get_failure(UNJANK_LIST_MODEL(missing)) == -ENOENT);
    g_object_unref(missing);
    /* In one where not every change is noticed, the rows are all there. */
    unjank_listing_options followed = {.size = sizeof followed, .flags = UNJANK_FOLLOW};
    GListModel *unnoticed = unjank_list_model_new("/proc/self", &followed, NULL);
    while (unjank_list_model_is_loading(UNJANK_LIST_MODEL(unnoticed)))
        g_main_context_iteration(NULL, TRUE);
    CHECK(g_list_model_get_n_items(unnoticed) > 10);
    CHECK(unjank_list_model_get_failure(UNJANK_LIST_MODEL(unnoticed)) == 0);
    g_object_unref(unnoticed);
    check_orders_in_handlers(arguments[1], 300);
    g_thread_join(g_thread_new("lists", list_in_context, arguments[1]));
    check_worker_that_ends(arguments[1]);
    unjank_listing_options options = {.size = sizeof options, .fields = UNJANK_SIZE, .flags = UNJANK_FOLLOW};
    unjank_model_options order = {.size = sizeof order, .locale = "en_GB.UTF-8"};
    GListModel *rows = unjank_list_model_new(arguments[1], &options, &order);
    CHECK(rows != NULL && g_list_model_get_item_type(rows) == UNJANK_TYPE_ITEM);
    g_signal_connect(rows, "items-changed", G_CALLBACK(rows_changed), NULL);
    while (g_list_model_get_n_items(rows) == 0)
        g_main_context_iteration(NULL, TRUE);
    gpointer shown = g_list_model_get_item(rows, 0);
    g_signal_connect(shown, "notify::generation", G_CALLBACK(item_changed), NULL);
    wait_for(rows, 300);
    UnjankItem *first = UNJANK_ITEM(g_list_model_get_item(rows, 9));
    gpointer again = g_list_model_get_item(rows, 9);
    CHECK(again == (gpointer)first);
    g_object_unref(again);
    char *name;
    g_object_get(first, "name", &name, NULL);
    CHECK(g_strcmp0(name, "file 9") == 0);
    g_free(name);
    unjank_entry entry;
    CHECK(unjank_item_get_entry(first, &entry) == 0 && (entry.fields & UNJANK_SIZE) && entry.bytes == 9);
    CHECK(unjank_item_get_entry(UNJANK_ITEM(shown), &entry) == 0 && (entry.fields & UNJANK_SIZE));

    char *path = g_build_filename(arguments[1], "file 9b", NULL);
    CHECK(g_file_set_contents(path, "twelve bytes", -1, NULL));
    /* Its temporary name may have been seen, too. */
    wait_for(rows, 301);
    CHECK(remove(path) == 0);
    wait_for(rows, 300);
    g_free(path);

    order.flags = UNJANK_DESCENDING;
    order.by = UNJANK_BY_SIZE;
    CHECK(unjank_list_model_set(UNJANK_LIST_MODEL(rows), &order) == 0);
    UnjankItem *largest = UNJANK_ITEM(g_list_model_get_item(rows, 0));
    CHECK(unjank_item_get_entry(largest, &entry) == 0 && entry.bytes == 299);
    CHECK(g_list_model_get_item(rows, 300) == NULL);
    g_object_unref(largest);
    g_object_unref(first);
    g_object_unref(shown);
    g_object_add_weak_pointer(G_OBJECT(rows), (gpointer *)&again);
    again = rows;
    g_object_unref(rows);
    CHECK(again == NULL);
    puts("good");
    return 0;
}
