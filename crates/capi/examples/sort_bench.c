/*
 * Measures another order of many rows: how long the main loop is held at most,
 * and until the rows are there. unjank_model_set() in slices, in one call, and
 * GtkSortListModel (incremental) over objects with the same names and sizes, in
 * turns in one process.
 *
 * cc -O2 sort_bench.c -o sort_bench $(pkg-config --cflags --libs unjank gtk4)
 * ./sort_bench DIRECTORY [ROUNDS, 7]
 *
 * No display is needed. A row is the median of the rounds and their spread, in
 * processor time of the thread of the main loop.
 */
#include <gtk/gtk.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unjank.h>

#define MOST_ROUNDS 31

/* A row of the peer: what a program keeps of a file. */
#define BENCH_TYPE_ROW (bench_row_get_type())
G_DECLARE_FINAL_TYPE(BenchRow, bench_row, BENCH, ROW, GObject)

struct _BenchRow {
    GObject parent;
    char *name;
    guint64 size;
};

enum { ROW_NAME = 1, ROW_SIZE };

G_DEFINE_TYPE(BenchRow, bench_row, G_TYPE_OBJECT)

static void bench_row_get_property(GObject *object, guint id, GValue *value, GParamSpec *spec)
{
    (void)spec;
    if (id == ROW_NAME)
        g_value_set_string(value, BENCH_ROW(object)->name);
    else
        g_value_set_uint64(value, BENCH_ROW(object)->size);
}

static void bench_row_class_init(BenchRowClass *class)
{
    GObjectClass *object = G_OBJECT_CLASS(class);
    object->get_property = bench_row_get_property;
    g_object_class_install_property(
        object, ROW_NAME, g_param_spec_string("name", NULL, NULL, NULL, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
    g_object_class_install_property(
        object, ROW_SIZE,
        g_param_spec_uint64("size", NULL, NULL, 0, G_MAXUINT64, 0, G_PARAM_READABLE | G_PARAM_STATIC_STRINGS));
}

static void bench_row_init(BenchRow *row)
{
    (void)row;
}

/* What one change of the order took, in milliseconds. */
typedef struct {
    double longest, whole;
} Taken;

enum { SLICES, ONE_CALL, GTK, WAYS };
static const char *const ways[WAYS] = {"in slices", "in one call", "GtkSortListModel"};

/* Processor time of the main loop's thread: what others do on the machine is not in it. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static Taken with_model(unjank_listing *listing, unjank_model *model, uint32_t by, uint32_t flags)
{
    unjank_model_options options = {.size = sizeof options, .by = by, .flags = flags};
    unjank_event event = {.size = sizeof event};
    Taken taken = {0, 0};
    double begun = now(), before = begun;
    int more = unjank_model_set(model, &options);
    for (;;) {
        double after = now();
        taken.longest = MAX(taken.longest, after - before);
        if (more <= 0)
            break;
        before = after;
        more = unjank_listing_next(listing, 0, &event);
    }
    taken.whole = now() - begun;
    return taken;
}

static Taken with_gtk(GtkSortListModel *sorted, GtkSorter *sorter)
{
    Taken taken = {0, 0};
    double begun = now(), before = begun;
    gtk_sort_list_model_set_sorter(sorted, sorter);
    do {
        double after = now();
        taken.longest = MAX(taken.longest, after - before);
        before = after;
        g_main_context_iteration(NULL, FALSE);
    } while (gtk_sort_list_model_get_pending(sorted) > 0);
    taken.longest = MAX(taken.longest, now() - before);
    taken.whole = now() - begun;
    return taken;
}

static GtkSorter *sorter_of(const char *property)
{
    GtkSorter *by_name = GTK_SORTER(gtk_string_sorter_new(gtk_property_expression_new(BENCH_TYPE_ROW, NULL, "name")));
    if (g_str_equal(property, "name"))
        return by_name;
    GtkMultiSorter *both = gtk_multi_sorter_new();
    gtk_multi_sorter_append(
        both, GTK_SORTER(gtk_numeric_sorter_new(gtk_property_expression_new(BENCH_TYPE_ROW, NULL, property))));
    gtk_multi_sorter_append(both, by_name);
    return GTK_SORTER(both);
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static void print(const char *what, const char *way, const double *times, int rounds)
{
    double sorted[MOST_ROUNDS];
    memcpy(sorted, times, (size_t)rounds * sizeof *sorted);
    qsort(sorted, (size_t)rounds, sizeof *sorted, compare);
    printf("%-9s %-17s %8.2f ms [%.2f ... %.2f]\n", what, way, sorted[rounds / 2], sorted[0], sorted[rounds - 1]);
}

int main(int count, char **arguments)
{
    int rounds = count > 2 ? atoi(arguments[2]) : 7;
    if (count < 2 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: sort_bench DIRECTORY [ROUNDS]\n");
        return 2;
    }
    unjank_listing_options how = {.size = sizeof how, .fields = UNJANK_SIZE};
    unjank_listing *listing;
    if (unjank_listing_open(arguments[1], &how, &listing) < 0)
        return 1;
    unjank_model *models[2];
    for (int model = 0; model < 2; model++)
        if (unjank_model_open(listing, NULL, &models[model]) < 0)
            return 1;
    unjank_event event = {.size = sizeof event};
    while (unjank_listing_next(listing, -1, &event) > 0) {
    }
    GListStore *rows = g_list_store_new(BENCH_TYPE_ROW);
    unjank_entry entry = {.size = sizeof entry};
    uint32_t number = 0;
    for (; unjank_listing_entry(listing, number, &entry) == 0; number++) {
        BenchRow *row = g_object_new(BENCH_TYPE_ROW, NULL);
        row->name = g_strdup(entry.name);
        row->size = entry.bytes;
        g_list_store_append(rows, row);
        g_object_unref(row);
    }
    GtkSortListModel *sorted = gtk_sort_list_model_new(G_LIST_MODEL(rows), NULL);
    gtk_sort_list_model_set_incremental(sorted, TRUE);
    static double longest[2][WAYS][MOST_ROUNDS], whole[2][WAYS][MOST_ROUNDS];
    static const char *const properties[2] = {"size", "name"};
    static const uint32_t orders[2] = {UNJANK_BY_SIZE, UNJANK_BY_NAME};
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            int way = (turn + round) % WAYS;
            for (int order = 0; order < 2; order++) {
                Taken taken;
                if (way == GTK) {
                    GtkSorter *sorter = sorter_of(properties[order]);
                    taken = with_gtk(sorted, sorter);
                    g_object_unref(sorter);
                } else {
                    uint32_t flags = way == SLICES ? UNJANK_IN_SLICES : 0;
                    taken = with_model(listing, models[way], orders[order], flags);
                }
                longest[order][way][round] = taken.longest;
                whole[order][way][round] = taken.whole;
            }
        }
    }
    for (int order = 0; order < 2; order++) {
        printf("%u rows, by %s\n", number, properties[order]);
        for (int way = 0; way < WAYS; way++)
            print("longest", ways[way], longest[order][way], rounds);
        for (int way = 0; way < WAYS; way++)
            print("all", ways[way], whole[order][way], rounds);
    }
    return 0;
}
