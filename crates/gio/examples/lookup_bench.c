/*
 * Measures look-ups of GSettings through libgiounjank and through dconf's own
 * module, in turns in one process, on the same database and the same service.
 *
 * cc -O2 lookup_bench.c -o lookup_bench $(pkg-config --cflags --libs gio-2.0)
 * GIO_EXTRA_MODULES=DIR ./lookup_bench /usr/bin/unjankd [ROUNDS, 21]
 *
 * DIR has libgiounjank.so; dconf's module is where GIO looks for modules. The
 * program starts itself again in a session of its own, whose settings service is
 * the program that is named.
 * The third backend, the floor, has one value of each type and returns it at
 * once: what a look-up with it costs is GLib's own, and no module is below.
 * A row is the median of the rounds in nanoseconds and their spread.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define G_SETTINGS_ENABLE_BACKEND
#include <gio/gio.h>
#include <gio/gsettingsbackend.h>
#include <glib/gstdio.h>

#define LOOKUPS 20000
#define KEYS 1000
#define MOST_ROUNDS 101

enum { UNJANK, DCONF, FLOOR, MODULES };
static const char *const names[MODULES] = {"unjank", "dconf", "floor"};
static GSettingsBackend *backends[MODULES];
static GSettings *settings[MODULES];
static volatile gint64 used;

/* The backend that does as little as one can: it looks at the end of the key, for keys that nobody set, and at the type. */
typedef GSettingsBackend FloorBackend;
typedef GSettingsBackendClass FloorBackendClass;
G_DEFINE_TYPE(FloorBackend, floor_backend, G_TYPE_SETTINGS_BACKEND)

static GVariant *floor_values[128];

static GVariant *floor_read(GSettingsBackend *backend, const char *key, const GVariantType *type,
                            gboolean is_default)
{
    (void)backend;
    if (is_default || key[strlen(key) - 1] == 't')
        return NULL;
    return g_variant_ref(floor_values[(unsigned char)*g_variant_type_peek_string(type)]);
}

static gboolean floor_get_writable(GSettingsBackend *backend, const char *key)
{
    (void)backend, (void)key;
    return TRUE;
}

static gboolean floor_write(GSettingsBackend *backend, const char *key, GVariant *value, gpointer tag)
{
    (void)backend, (void)key, (void)tag;
    g_variant_unref(g_variant_ref_sink(value));
    return TRUE;
}

static void floor_ignore(GSettingsBackend *backend, const char *name)
{
    (void)backend, (void)name;
}

static void floor_sync(GSettingsBackend *backend)
{
    (void)backend;
}

static void floor_backend_class_init(FloorBackendClass *class)
{
    class->read = floor_read;
    class->get_writable = floor_get_writable;
    class->write = floor_write;
    class->subscribe = class->unsubscribe = floor_ignore;
    class->sync = floor_sync;
    floor_values['i'] = g_variant_ref_sink(g_variant_new_int32(7));
    floor_values['b'] = g_variant_ref_sink(g_variant_new_boolean(TRUE));
    floor_values['s'] = g_variant_ref_sink(g_variant_new_string("Inter 12"));
}

static void floor_backend_init(FloorBackend *backend)
{
    (void)backend;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void get_int(int module)
{
    used += g_settings_get_int(settings[module], "k7");
}

static void get_boolean(int module)
{
    used += g_settings_get_boolean(settings[module], "flag");
}

static void get_string(int module)
{
    char *text = g_settings_get_string(settings[module], "font-name");
    used += text[0];
    g_free(text);
}

static void get_unset(int module)
{
    used += g_settings_get_int(settings[module], "unset");
}

static void read_value(int module)
{
    GSettingsBackend *backend = backends[module];
    GVariant *value = G_SETTINGS_BACKEND_GET_CLASS(backend)->read(
        backend, "/org/unjank/bench/k7", G_VARIANT_TYPE_INT32, FALSE);
    used += g_variant_get_int32(value);
    g_variant_unref(value);
}

static void read_unset(int module)
{
    GSettingsBackend *backend = backends[module];
    GVariant *value = G_SETTINGS_BACKEND_GET_CLASS(backend)->read(
        backend, "/org/unjank/bench/unset", G_VARIANT_TYPE_INT32, FALSE);
    used += value == NULL;
}

static const struct {
    const char *name;
    void (*run)(int module);
} rows[] = {
    {"g_settings_get_int", get_int},         {"g_settings_get_boolean", get_boolean},
    {"g_settings_get_string", get_string},   {"g_settings_get_int, not set", get_unset},
    {"the module's part of it", read_value}, {"the module's part, not set", read_unset},
};
#define ROWS (sizeof rows / sizeof *rows)

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

/* Prints the medians, the spreads and the ratios. */
static void print_rows(const char *when, double (*times)[MODULES][ROWS], int rounds)
{
    printf("%s\n", when);
    for (size_t row = 0; row < ROWS; row++) {
        double median[MODULES];
        printf("  %-28s", rows[row].name);
        for (int module = 0; module < MODULES; module++) {
            double sorted[MOST_ROUNDS];
            for (int round = 0; round < rounds; round++)
                sorted[round] = times[round][module][row];
            qsort(sorted, rounds, sizeof *sorted, compare);
            median[module] = sorted[rounds / 2];
            printf("  %s %6.0f ns [%.0f ... %.0f]", names[module], median[module], sorted[0],
                   sorted[rounds - 1]);
        }
        printf("  unjank / dconf 1/%.2f  floor / dconf 1/%.2f\n", median[DCONF] / median[UNJANK],
               median[DCONF] / median[FLOOR]);
    }
}

static void measure(int module, double *times)
{
    for (size_t row = 0; row < ROWS; row++) {
        for (int count = 0; count < 100; count++)
            rows[row].run(module);
        double begin = now();
        for (int count = 0; count < LOOKUPS; count++)
            rows[row].run(module);
        times[row] = (now() - begin) / LOOKUPS;
    }
}

static void make_schema(const char *directory)
{
    GString *text = g_string_new("<schemalist><schema id='org.unjank.bench' path='/org/unjank/bench/'>"
                                 "<key name='font-name' type='s'><default>'Sans'</default></key>"
                                 "<key name='flag' type='b'><default>false</default></key>"
                                 "<key name='unset' type='i'><default>3</default></key>");
    for (int key = 0; key < KEYS; key++)
        g_string_append_printf(text, "<key name='k%d' type='i'><default>0</default></key>", key);
    g_string_append(text, "</schema></schemalist>");
    char *file = g_build_filename(directory, "org.unjank.bench.gschema.xml", NULL);
    g_assert_true(g_file_set_contents(file, text->str, -1, NULL));
    char *command = g_strdup_printf("glib-compile-schemas %s", directory);
    g_assert_cmpint(system(command), ==, 0);
    g_setenv("GSETTINGS_SCHEMA_DIR", directory, TRUE);
}

/* The process of the settings service. */
static pid_t service(void)
{
    GDBusConnection *bus = g_bus_get_sync(G_BUS_TYPE_SESSION, NULL, NULL);
    GVariant *answer = g_dbus_connection_call_sync(
        bus, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
        "GetConnectionUnixProcessID", g_variant_new("(s)", "ca.desrt.dconf"), NULL,
        G_DBUS_CALL_FLAGS_NONE, -1, NULL, NULL);
    g_assert_nonnull(answer);
    guint32 process;
    g_variant_get(answer, "(u)", &process);
    return (pid_t)process;
}

/* Changes all keys; the service is stopped, so that all changes stay in flight. */
static void write_all(int module, int round)
{
    char key[16];
    for (int number = 0; number < KEYS; number++) {
        snprintf(key, sizeof key, "k%d", number);
        g_settings_set_int(settings[module], key, round * 2 + module + number);
    }
}

/* Starts the program again in a session of its own. Does not return. */
static void start_session(char **arguments)
{
    char *home = g_dir_make_tmp("lookup-bench-XXXXXX", NULL);
    char *services = g_build_filename(home, "dbus-1", "services", NULL);
    char *file = g_build_filename(services, "ca.desrt.dconf.service", NULL);
    char *text = g_strdup_printf("[D-BUS Service]\nName=ca.desrt.dconf\nExec=%s\n", arguments[1]);
    g_assert_cmpint(g_mkdir_with_parents(services, 0700), ==, 0);
    g_assert_true(g_file_set_contents(file, text, -1, NULL));
    g_setenv("LOOKUP_BENCH_HOME", home, TRUE);
    g_setenv("XDG_DATA_HOME", home, TRUE);
    g_setenv("XDG_CONFIG_HOME", home, TRUE);
    char *runtime = g_build_filename(home, "run", NULL);
    g_assert_cmpint(g_mkdir(runtime, 0700), ==, 0);
    g_setenv("XDG_RUNTIME_DIR", runtime, TRUE);
    g_setenv("GSETTINGS_BACKEND", "memory", TRUE);
    make_schema(home);
    execlp("dbus-run-session", "dbus-run-session", "--", arguments[0], arguments[1], arguments[2],
           NULL);
    perror("lookup_bench: dbus-run-session");
    exit(1);
}

int main(int count, char **arguments)
{
    int rounds = count > 2 ? atoi(arguments[2]) : 21;
    if (count < 2 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: lookup_bench PATH_OF_UNJANKD [ROUNDS]\n");
        return 2;
    }
    if (g_getenv("LOOKUP_BENCH_HOME") == NULL)
        start_session(arguments);
    g_settings_backend_get_default();
    for (int module = 0; module < MODULES; module++) {
        if (module == FLOOR) {
            backends[module] = g_object_new(floor_backend_get_type(), NULL);
            settings[module] = g_settings_new_with_backend("org.unjank.bench", backends[module]);
            continue;
        }
        GIOExtensionPoint *point =
            g_io_extension_point_lookup(G_SETTINGS_BACKEND_EXTENSION_POINT_NAME);
        GIOExtension *extension = g_io_extension_point_get_extension_by_name(point, names[module]);
        if (extension == NULL) {
            fprintf(stderr, "lookup_bench: GIO finds no module of the name %s\n", names[module]);
            return 1;
        }
        backends[module] = g_object_new(g_io_extension_get_type(extension), NULL);
        settings[module] = g_settings_new_with_backend("org.unjank.bench", backends[module]);
    }
    g_settings_set_string(settings[UNJANK], "font-name", "Inter 12");
    g_settings_set_boolean(settings[UNJANK], "flag", TRUE);
    write_all(UNJANK, 0);
    G_SETTINGS_BACKEND_GET_CLASS(backends[UNJANK])->sync(backends[UNJANK]);
    static double quiet[MOST_ROUNDS][MODULES][ROWS], busy[MOST_ROUNDS][MODULES][ROWS];
    pid_t process = service();
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < MODULES; turn++)
            measure((turn + round) % MODULES, quiet[round][(turn + round) % MODULES]);
        for (int turn = 0; turn < MODULES; turn++) {
            int module = (turn + round) % MODULES;
            kill(process, SIGSTOP);
            write_all(module, round + 1);
            measure(module, busy[round][module]);
            kill(process, SIGCONT);
            G_SETTINGS_BACKEND_GET_CLASS(backends[module])->sync(backends[module]);
        }
    }
    g_assert_cmpint(g_settings_get_int(settings[UNJANK], "k7"), ==,
                    g_settings_get_int(settings[DCONF], "k7"));
    printf("%d look-ups a round, %d rounds\n", LOOKUPS, rounds);
    print_rows("nothing is written", quiet, rounds);
    print_rows("1,000 writes are in flight", busy, rounds);
    return 0;
}
