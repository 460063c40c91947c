/*
 * Measures 1,000 changes of settings in the text file of sandboxes through
 * libgiounjank.so and through GLib's own backend, in turns in one process, each
 * with a file of its own in one directory.
 *
 * cc -O2 keyfile_bench.c -o keyfile_bench $(pkg-config --cflags --libs gio-2.0)
 * GIO_EXTRA_MODULES=DIR ./keyfile_bench DIRECTORY [ROUNDS, 5]
 *
 * DIR has libgiounjank.so; the files are below DIRECTORY.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define G_SETTINGS_ENABLE_BACKEND
#include <gio/gio.h>
#include <gio/gsettingsbackend.h>
#include <glib/gstdio.h>

#define KEYS 1000
#define MOST_ROUNDS 101

enum { CALLS, LONGEST, STORED, VALUES };
static const char *const rows[VALUES] = {"1,000 changes, in the program", "the longest of them",
                                         "until all are stored"};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static void make_schema(const char *directory)
{
    GString *text = g_string_new("<schemalist><schema id='org.unjank.bench' path='/org/unjank/bench/'>");
    for (int key = 0; key < KEYS; key++)
        g_string_append_printf(text, "<key name='k%d' type='i'><default>0</default></key>", key);
    g_string_append(text, "</schema></schemalist>");
    char *file = g_build_filename(directory, "org.unjank.bench.gschema.xml", NULL);
    g_assert_true(g_file_set_contents(file, text->str, -1, NULL));
    char *command = g_strdup_printf("glib-compile-schemas %s", directory);
    g_assert_cmpint(system(command), ==, 0);
    g_setenv("GSETTINGS_SCHEMA_DIR", directory, TRUE);
}

static void measure(GSettingsBackend *backend, int value, double *times)
{
    GSettings *settings = g_settings_new_with_backend("org.unjank.bench", backend);
    GSettingsBackendClass *class = G_SETTINGS_BACKEND_GET_CLASS(backend);
    char key[16];
    double begin = now(), longest = 0;
    for (int number = 0; number < KEYS; number++) {
        double before = now();
        snprintf(key, sizeof key, "k%d", number);
        g_assert_true(g_settings_set_int(settings, key, value + number));
        longest = MAX(longest, now() - before);
    }
    times[CALLS] = now() - begin;
    times[LONGEST] = longest;
    if (class->sync != NULL)
        class->sync(backend);
    times[STORED] = now() - begin;
    g_object_unref(settings);
}

int main(int count, char **arguments)
{
    int rounds = count > 2 ? atoi(arguments[2]) : 5;
    if (count < 2 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: keyfile_bench DIRECTORY [ROUNDS]\n");
        return 2;
    }
    g_setenv("XDG_CONFIG_HOME", arguments[1], TRUE);
    g_setenv("GSETTINGS_BACKEND", "memory", TRUE);
    make_schema(arguments[1]);
    g_settings_backend_get_default();
    char *file = g_build_filename(arguments[1], "glib", NULL);
    GIOExtensionPoint *point = g_io_extension_point_lookup(G_SETTINGS_BACKEND_EXTENSION_POINT_NAME);
    GIOExtension *extension = g_io_extension_point_get_extension_by_name(point, "unjank-keyfile");
    if (extension == NULL) {
        fprintf(stderr, "keyfile_bench: GIO finds no module with unjank-keyfile\n");
        return 1;
    }
    GSettingsBackend *backends[2] = {g_object_new(g_io_extension_get_type(extension), NULL),
                                     g_keyfile_settings_backend_new(file, "/", NULL)};
    static double times[2][VALUES][MOST_ROUNDS];
    for (int round = 0; round < rounds; round++) {
        for (int turn = 0; turn < 2; turn++) {
            int which = (turn + round) % 2;
            double measured[VALUES];
            measure(backends[which], round * KEYS + 1, measured);
            for (int value = 0; value < VALUES; value++)
                times[which][value][round] = measured[value];
        }
    }
    for (int value = 0; value < VALUES; value++) {
        for (int which = 0; which < 2; which++)
            qsort(times[which][value], rounds, sizeof(double), compare);
        double *ours = times[0][value], *theirs = times[1][value];
        printf("%-32s ours %.2f ms [%.2f ... %.2f]  GLib's %.1f ms [%.1f ... %.1f]  1/%.0f\n",
               rows[value], ours[rounds / 2], ours[0], ours[rounds - 1], theirs[rounds / 2],
               theirs[0], theirs[rounds - 1], theirs[rounds / 2] / ours[rounds / 2]);
    }
    return 0;
}
