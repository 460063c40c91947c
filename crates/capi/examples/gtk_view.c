/* A GtkColumnView over a directory, and what it costs beside GtkDirectoryList.
 * cc gtk_view.c $(pkg-config --cflags --libs unjank gtk4)
 * Run as: gtk_view DIRECTORY [unjank | gtk | floor] [SECONDS]
 * With SECONDS it prints figures: the window is shown and at rest before the directory is loaded into it, and when all
 * is there it is scrolled for so long. "floor" is no directory: 500,000 rows that are there from the begin and cost nothing
 * to make, which shows what GTK itself takes. */
#define UNJANK_GIO_IMPLEMENTATION
#include <unjank-gio.h>

#include <gtk/gtk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum source { BY_UNJANK, BY_GTK, FLOOR };

/* What is measured in one part of a run. */
struct part {
    gint64 turn;     /* the longest turn of the main loop: from one poll to the next */
    gint64 work;     /* the most processor time of a turn, which programs beside it do not change */
    gint64 interval; /* the longest time between two frames */
    guint frames, late; /* frames, and those that came later than one and a half of 16.7 ms */
};

static struct {
    const char *path;
    enum source source;
    gboolean measured;
    double seconds;
    gint64 begun, first_rows, settled, complete, last_frame, turn_begun, work_begun;
    struct part rest, loading, scrolling, *part;
    GListModel *model;
    GtkDirectoryList *list;
    GtkColumnView *columns;
    GtkWidget *scrolled;
    guint64 top;
    guint over;
} view;

static double ms(gint64 time)
{
    return (double)time / 1000;
}

/* ------------------------------------------------------------- the floor */

#define FLOOR_ROWS 500000
typedef struct {
    GObject parent;
} FloorList;
typedef struct {
    GObjectClass parent;
} FloorListClass;

static GType floor_item_type(GListModel *list)
{
    (void)list;
    return GTK_TYPE_STRING_OBJECT;
}

static guint floor_n_items(GListModel *list)
{
    (void)list;
    return FLOOR_ROWS;
}

static gpointer floor_item(GListModel *list, guint row)
{
    (void)list;
    char name[32];
    g_snprintf(name, sizeof name, "file-%06u.txt", row);
    return row < FLOOR_ROWS ? gtk_string_object_new(name) : NULL;
}

static void floor_interface(GListModelInterface *interface)
{
    interface->get_item_type = floor_item_type;
    interface->get_n_items = floor_n_items;
    interface->get_item = floor_item;
}

static GType floor_list_get_type(void);
G_DEFINE_TYPE_WITH_CODE(FloorList, floor_list, G_TYPE_OBJECT,
                        G_IMPLEMENT_INTERFACE(G_TYPE_LIST_MODEL, floor_interface))

static void floor_list_init(FloorList *list)
{
    (void)list;
}

static void floor_list_class_init(FloorListClass *class_)
{
    (void)class_;
}

/* ------------------------------------------------------------------ rows */

static void show_item(GtkListItem *cell)
{
    GtkLabel *label = GTK_LABEL(gtk_list_item_get_child(cell));
    const char *column = (const char *)g_object_get_data(G_OBJECT(label), "column");
    gpointer item = gtk_list_item_get_item(cell);
    if (!item)
        return;
    char *text = NULL;
    if (view.source == FLOOR) {
        gboolean is_name = strcmp(column, "name") == 0;
        text = g_strdup(is_name ? gtk_string_object_get_string(GTK_STRING_OBJECT(item)) : "2026-11-23 14:00");
    } else if (view.source == BY_GTK) {
        GFileInfo *info = G_FILE_INFO(item);
        if (strcmp(column, "name") == 0)
            text = g_strdup(g_file_info_get_display_name(info));
        else if (strcmp(column, "size") == 0)
            text = g_format_size((guint64)g_file_info_get_size(info));
        else {
            GDateTime *time = g_file_info_get_modification_date_time(info);
            text = time ? g_date_time_format(time, "%Y-%m-%d %H:%M") : NULL;
            g_clear_pointer(&time, g_date_time_unref);
        }
    } else {
        unjank_entry entry;
        if (unjank_item_get_entry(UNJANK_ITEM(item), &entry) < 0)
            return;
        if (strcmp(column, "name") == 0)
            text = g_filename_display_name(entry.name);
        else if (strcmp(column, "size") == 0 && (entry.fields & UNJANK_SIZE))
            text = g_format_size(entry.bytes);
        else if (entry.modified.known) {
            GDateTime *time = g_date_time_new_from_unix_local(entry.modified.seconds);
            text = time ? g_date_time_format(time, "%Y-%m-%d %H:%M") : NULL;
            g_clear_pointer(&time, g_date_time_unref);
        }
    }
    gtk_label_set_text(label, text ? text : "");
    g_free(text);
}

static void more_is_known(GObject *item, GParamSpec *spec, gpointer cell)
{
    (void)item;
    (void)spec;
    show_item(GTK_LIST_ITEM(cell));
}

static void setup(GtkSignalListItemFactory *factory, GtkListItem *cell, gpointer column)
{
    (void)factory;
    GtkWidget *label = gtk_label_new(NULL);
    gtk_label_set_xalign(GTK_LABEL(label), 0);
    g_object_set_data(G_OBJECT(label), "column", column);
    gtk_list_item_set_child(cell, label);
}

static void bind(GtkSignalListItemFactory *factory, GtkListItem *cell, gpointer column)
{
    (void)factory;
    (void)column;
    if (view.source == BY_UNJANK)
        g_signal_connect(gtk_list_item_get_item(cell), "notify::generation", G_CALLBACK(more_is_known), cell);
    show_item(cell);
}

static void unbind(GtkSignalListItemFactory *factory, GtkListItem *cell, gpointer column)
{
    (void)factory;
    (void)column;
    if (view.source == BY_UNJANK)
        g_signal_handlers_disconnect_by_data(gtk_list_item_get_item(cell), cell);
}

/* --------------------------------------------------------------- figures */

static gboolean is_loading(void)
{
    switch (view.source) {
    case BY_UNJANK:
        return unjank_list_model_is_loading(UNJANK_LIST_MODEL(view.model));
    case BY_GTK:
        return gtk_directory_list_is_loading(view.list) ||
               gtk_sort_list_model_get_pending(GTK_SORT_LIST_MODEL(view.model)) > 0;
    default:
        return FALSE;
    }
}

/* The name of the first row. */
static char *first_name(void)
{
    gpointer item = view.model ? g_list_model_get_item(view.model, 0) : NULL;
    char *name = NULL;
    if (item && view.source == BY_UNJANK)
        g_object_get(item, "name", &name, NULL);
    else if (item && view.source == BY_GTK)
        name = g_strdup(g_file_info_get_display_name(G_FILE_INFO(item)));
    else if (item)
        name = g_strdup(gtk_string_object_get_string(GTK_STRING_OBJECT(item)));
    g_clear_object(&item);
    return name;
}

static void print_part(const char *name, const struct part *part)
{
    printf("  %s: longest turn %.1f ms (%.1f ms of processor), longest between frames %.1f ms, %u of %u frames late", name, ms(part->turn),
           ms(part->work), ms(part->interval), part->late, part->frames);
}

static gboolean end(gpointer application)
{
    static const char *const sources[] = {"unjank", "gtk", "floor"};
    printf("%-6s %u rows  first %.1f ms  first for good %.1f ms  complete %.1f ms", sources[view.source],
           g_list_model_get_n_items(view.model), ms(view.first_rows - view.begun), ms(view.settled - view.begun),
           ms(view.complete - view.begun));
    print_part("loading", &view.loading);
    print_part("scrolling", &view.scrolling);
    printf("\n");
    fflush(stdout);
    g_application_quit(G_APPLICATION(application));
    return G_SOURCE_REMOVE;
}

static gint64 processor_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (gint64)time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

/* Stands for poll() in the main loop: what passes from one call to the next is a turn. */
static gint poll_between_turns(GPollFD *descriptors, guint count, gint timeout)
{
    gint64 turn = g_get_monotonic_time() - view.turn_begun, work = processor_time() - view.work_begun;
    if (view.part && view.turn_begun) {
        view.part->turn = MAX(view.part->turn, turn);
        view.part->work = MAX(view.part->work, work);
        if (work > 12000 && g_getenv("GTK_VIEW_TURNS"))
            fprintf(stderr, "%.1f ms of processor at %.1f ms\n", ms(work), ms(view.turn_begun - view.begun));
    }
    gint ready = g_poll(descriptors, count, timeout);
    view.turn_begun = g_get_monotonic_time();
    view.work_begun = processor_time();
    return ready;
}

static void load(void);

/* Called when a frame was laid out and drawn. */
static void after_paint(GdkFrameClock *clock, gpointer application)
{
    (void)clock;
    static char *shown;
    gint64 now = g_get_monotonic_time();
    gint64 passed = view.last_frame ? now - view.last_frame : 0;
    view.last_frame = now;
    if (!view.model)
        return;
    guint rows = g_list_model_get_n_items(view.model);
    if (view.part) {
        view.part->frames++;
        view.part->late += passed > 25000;
        view.part->interval = MAX(view.part->interval, passed);
    }
    /* The floor has one row far away change in each of 60 frames: what any change of the rows costs a view. */
    if (rows > 0 && !view.first_rows)
        view.first_rows = now;
    if (rows > 0 && view.source == FLOOR && view.part == &view.loading && view.loading.frames <= 60) {
        g_list_model_items_changed(view.model, 400000, 1, 1);
    } else if (rows > 0 && !view.complete) {
        if (!view.first_rows)
            view.first_rows = now;
        char *first = first_name();
        if (g_strcmp0(first, shown) != 0)
            view.settled = now;
        g_free(shown);
        shown = first;
        if (!is_loading()) {
            view.complete = now;
            view.part = NULL;
            if (view.measured)
                view.over = g_timeout_add((guint)(view.seconds * 1000), end, application);
        }
    }
}

/* Called once a frame, before it is laid out and drawn; frames go on as long as this is there. */
static gboolean frame(GtkWidget *widget, GdkFrameClock *clock, gpointer application)
{
    (void)widget;
    static guint frames;
    if (frames++ == 0)
        g_signal_connect(clock, "after-paint", G_CALLBACK(after_paint), application);
    /* The window is there and at rest when the directory is loaded. */
    if (frames == 40)
        load();
    if (view.over) {
        view.part = &view.scrolling;
        /* Scrolls by some rows in each frame. */
        GtkAdjustment *place = gtk_scrolled_window_get_vadjustment(GTK_SCROLLED_WINDOW(view.scrolled));
        gtk_adjustment_set_value(place, gtk_adjustment_get_value(place) + 70);
    }
    return G_SOURCE_CONTINUE;
}

/* ------------------------------------------------------------------ view */

static void add_column(GtkColumnView *columns, const char *title, const char *name, gboolean expand)
{
    GtkListItemFactory *factory = gtk_signal_list_item_factory_new();
    g_signal_connect(factory, "setup", G_CALLBACK(setup), (gpointer)name);
    g_signal_connect(factory, "bind", G_CALLBACK(bind), (gpointer)name);
    g_signal_connect(factory, "unbind", G_CALLBACK(unbind), (gpointer)name);
    GtkColumnViewColumn *column = gtk_column_view_column_new(title, factory);
    gtk_column_view_column_set_expand(column, expand);
    gtk_column_view_column_set_resizable(column, TRUE);
    gtk_column_view_column_set_fixed_width(column, expand ? -1 : 150);
    gtk_column_view_append_column(columns, column);
    g_object_unref(column);
}

static char *name_of(GFileInfo *info)
{
    return g_strdup(g_file_info_get_display_name(info));
}

/* What a program does with GTK alone: a list of file infos, sorted by name as they arrive. */
static GListModel *by_gtk(void)
{
    GFile *file = g_file_new_for_path(view.path);
    view.list = gtk_directory_list_new("standard::name,standard::display-name,standard::size,standard::type,time::modified", file);
    g_object_unref(file);
    GtkExpression *name = gtk_cclosure_expression_new(G_TYPE_STRING, NULL, 0, NULL, G_CALLBACK(name_of), NULL, NULL);
    GtkSortListModel *sorted = gtk_sort_list_model_new(G_LIST_MODEL(view.list), GTK_SORTER(gtk_string_sorter_new(name)));
    gtk_sort_list_model_set_incremental(sorted, TRUE);
    return G_LIST_MODEL(sorted);
}

static void load(void)
{
    view.part = &view.loading;
    view.begun = view.last_frame = g_get_monotonic_time();
    switch (view.source) {
    case BY_UNJANK:
        view.model = unjank_list_model_new(view.path, NULL, NULL);
        break;
    case BY_GTK:
        view.model = by_gtk();
        break;
    case FLOOR:
        view.model = G_LIST_MODEL(g_object_new(floor_list_get_type(), NULL));
        break;
    }
    if (!view.model) {
        fprintf(stderr, "gtk_view: %s\n", unjank_error_text());
        exit(1);
    }
    /* With GtkSingleSelection a GtkSortListModel that changes takes several times as long. */
    GListModel *model = g_object_ref(view.model);
    GtkSelectionModel *selection = view.measured ? GTK_SELECTION_MODEL(gtk_no_selection_new(model))
                                                 : GTK_SELECTION_MODEL(gtk_single_selection_new(model));
    gtk_column_view_set_model(view.columns, selection);
    g_object_unref(selection);
}

static void activate(GtkApplication *application, gpointer unused)
{
    (void)unused;
    GtkWidget *window = gtk_application_window_new(application);
    gtk_window_set_title(GTK_WINDOW(window), view.path);
    gtk_window_set_default_size(GTK_WINDOW(window), 900, 600);
    GtkWidget *columns = gtk_column_view_new(NULL);
    view.columns = GTK_COLUMN_VIEW(columns);
    add_column(view.columns, "Name", "name", TRUE);
    add_column(view.columns, "Size", "size", FALSE);
    add_column(view.columns, "Modified", "modified", FALSE);
    view.scrolled = gtk_scrolled_window_new();
    gtk_scrolled_window_set_child(GTK_SCROLLED_WINDOW(view.scrolled), columns);
    gtk_window_set_child(GTK_WINDOW(window), view.scrolled);
    if (view.measured)
        gtk_widget_add_tick_callback(columns, frame, application, NULL);
    else
        load();
    gtk_window_present(GTK_WINDOW(window));
}

int main(int count, char **arguments)
{
    view.path = count > 1 ? arguments[1] : ".";
    const char *source = count > 2 ? arguments[2] : "unjank";
    view.source = strcmp(source, "gtk") == 0 ? BY_GTK : strcmp(source, "floor") == 0 ? FLOOR : BY_UNJANK;
    view.measured = count > 3;
    view.seconds = view.measured ? atof(arguments[3]) : 0;
    g_main_context_set_poll_func(NULL, poll_between_turns);
    GtkApplication *application = gtk_application_new(NULL, G_APPLICATION_NON_UNIQUE);
    g_signal_connect(application, "activate", G_CALLBACK(activate), NULL);
    int status = g_application_run(G_APPLICATION(application), 1, arguments);
    g_object_unref(application);
    return status;
}
