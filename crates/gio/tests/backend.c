/*
 * A program that uses GSettings, to be run with GSETTINGS_BACKEND=unjank in a
 * session of its own: backend NAME. Prints "good".
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define G_SETTINGS_ENABLE_BACKEND
#include <gio/gio.h>
#include <gio/gsettingsbackend.h>
#include <glib/gstdio.h>

#define WRITES 1000

static int changed_count;
static int fence_count;
static char last_changed[64];

static void on_changed(GSettings *settings, const char *key, gpointer data)
{
    (void)settings;
    (void)data;
    changed_count++;
    fence_count += strcmp(key, "fence") == 0;
    g_strlcpy(last_changed, key, sizeof last_changed);
}

static GSettings *open_settings(void)
{
    GSettings *settings = g_settings_new("org.unjank.test");
    g_signal_connect(settings, "changed", G_CALLBACK(on_changed), NULL);
    return settings;
}

/* Runs the main loop until the condition holds; fails after 30 seconds. */
#define WAIT_UNTIL(condition)                                                     \
    do {                                                                          \
        gint64 limit = g_get_monotonic_time() + 30 * G_USEC_PER_SEC;              \
        while (!(condition)) {                                                    \
            if (g_get_monotonic_time() > limit)                                   \
                g_error("waited 30 seconds for %s", #condition);                  \
            if (!g_main_context_iteration(NULL, FALSE))                           \
                g_usleep(500);                                                    \
        }                                                                         \
    } while (0)

/* Runs a command that must succeed, without this backend, and returns what it prints. */
static char *run(const char *command)
{
    char *printed = NULL;
    int status = 0;
    GError *error = NULL;
    if (!g_spawn_command_line_sync(command, &printed, NULL, &status, &error))
        g_error("%s: %s", command, error->message);
    if (status != 0)
        g_error("%s: status %d", command, status);
    return g_strchomp(printed);
}

static void expect_output(const char *command, const char *expected)
{
    char *printed = run(command);
    if (strcmp(printed, expected) != 0)
        g_error("%s: '%s' and not '%s'", command, printed, expected);
    g_free(printed);
}

static pid_t service(void)
{
    GError *error = NULL;
    GDBusConnection *bus = g_bus_get_sync(G_BUS_TYPE_SESSION, NULL, NULL);
    GVariant *answer = g_dbus_connection_call_sync(
        bus, "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
        "GetConnectionUnixProcessID", g_variant_new("(s)", "ca.desrt.dconf"), NULL,
        G_DBUS_CALL_FLAGS_NONE, -1, NULL, &error);
    if (answer == NULL)
        g_error("no service: %s", error->message);
    guint32 process;
    g_variant_get(answer, "(u)", &process);
    g_variant_unref(answer);
    g_object_unref(bus);
    return (pid_t)process;
}

/* Waits until the bus delivers signals, and for all that is told of until then. */
static void settle(GSettings *settings)
{
    static int fence;
    for (int round = 0; round < 2; round++) {
        char command[96];
        g_snprintf(command, sizeof command, "dconf write /org/unjank/test/fence %d", ++fence);
        fence_count = 0;
        run(command);
        WAIT_UNTIL(fence_count > 0 && g_settings_get_int(settings, "fence") == fence);
    }
    while (g_main_context_iteration(NULL, FALSE)) {
    }
    changed_count = fence_count = 0;
}

/* What every program does with settings. */
static void test_ordinary(void)
{
    GSettings *settings = open_settings();
    GSettingsBackend *backend;
    g_object_get(settings, "backend", &backend, NULL);
    /* The same is expected of dconf's own module. */
    if (strcmp(g_getenv("GSETTINGS_BACKEND"), "unjank") == 0)
        g_assert_cmpstr(G_OBJECT_TYPE_NAME(backend), ==, "UnjankSettingsBackend");
    g_object_unref(backend);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    g_assert_null(g_settings_get_user_value(settings, "number"));
    g_assert_true(g_settings_is_writable(settings, "number"));
    settle(settings);
    /* Its own change is there and told at once. */
    g_assert_true(g_settings_set_int(settings, "number", 7));
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 7);
    g_assert_cmpint(changed_count, ==, 1);
    g_assert_cmpstr(last_changed, ==, "number");
    /* The same again is no change. */
    g_assert_true(g_settings_set_int(settings, "number", 7));
    g_assert_cmpint(changed_count, ==, 1);
    g_settings_sync();
    expect_output("dconf read /org/unjank/test/number", "7");
    /* Its own change is told once, and one of another program once. */
    run("dconf write /org/unjank/test/text \"'theirs'\"");
    WAIT_UNTIL(changed_count >= 2);
    g_assert_cmpstr(last_changed, ==, "text");
    char *text = g_settings_get_string(settings, "text");
    g_assert_cmpstr(text, ==, "theirs");
    g_free(text);
    run("dconf write /org/unjank/test/fence -1");
    WAIT_UNTIL(g_strcmp0(last_changed, "fence") == 0);
    g_assert_cmpint(changed_count, ==, 3);
    /* The user's value, the default value, and a reset. */
    GVariant *value = g_settings_get_user_value(settings, "number");
    g_assert_cmpint(g_variant_get_int32(value), ==, 7);
    g_variant_unref(value);
    value = g_settings_get_default_value(settings, "number");
    g_assert_cmpint(g_variant_get_int32(value), ==, 5);
    g_variant_unref(value);
    g_settings_reset(settings, "number");
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    g_assert_cmpint(changed_count, ==, 4);
    g_settings_sync();
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    expect_output("dconf read /org/unjank/test/number", "");
    /* Several at once, and none. */
    g_settings_delay(settings);
    g_settings_set_int(settings, "number", 11);
    g_settings_set_string(settings, "text", "ours");
    g_assert_true(g_settings_get_has_unapplied(settings));
    expect_output("dconf read /org/unjank/test/text", "'theirs'");
    g_settings_revert(settings);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    g_settings_set_int(settings, "number", 12);
    g_settings_set_string(settings, "text", "ours");
    g_settings_apply(settings);
    g_settings_sync();
    expect_output("dconf read /org/unjank/test/number", "12");
    expect_output("dconf read /org/unjank/test/text", "'ours'");
    g_object_unref(settings);
    /* A directory is reset, and another one that is watched lies below it. */
    settings = open_settings();
    GSettings *child = g_settings_get_child(settings, "child");
    g_settings_set_string(child, "name", "inner");
    g_settings_sync();
    int before = changed_count;
    run("dconf reset -f /org/unjank/test/");
    WAIT_UNTIL(changed_count > before);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    text = g_settings_get_string(child, "name");
    g_assert_cmpstr(text, ==, "outer");
    g_free(text);
    /* A value of another type, which only other programs can set. */
    run("dconf write /org/unjank/test/number \"'no number'\"");
    expect_output("dconf read /org/unjank/test/number", "'no number'");
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    g_settings_set_int(settings, "number", 13);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 13);
    g_settings_sync();
    g_object_unref(child);
    g_object_unref(settings);
}

/* Objects come and go while another program writes: each watch is counted. */
static void test_watches(void)
{
    GSettings *first = open_settings(), *second = open_settings();
    settle(second);
    g_object_unref(first);
    run("dconf write /org/unjank/test/number 21");
    WAIT_UNTIL(changed_count >= 1);
    g_object_unref(second);
    changed_count = 0;
    for (int round = 0; round < 200; round++)
        g_object_unref(open_settings());
    first = open_settings();
    settle(first);
    run("dconf write /org/unjank/test/number 22");
    WAIT_UNTIL(g_strcmp0(last_changed, "number") == 0);
    g_assert_cmpint(g_settings_get_int(first, "number"), ==, 22);
    run("dconf write /org/unjank/test/fence -2");
    WAIT_UNTIL(fence_count > 0);
    /* A signal of the fence before may come late. */
    g_assert_cmpint(changed_count - fence_count, ==, 1);
    g_object_unref(first);
}

/* Keys that the administrator locked; the profile is $DCONF_PROFILE. */
static void test_locks(void)
{
    GSettings *settings = open_settings();
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 99);
    g_assert_false(g_settings_is_writable(settings, "number"));
    g_assert_true(g_settings_is_writable(settings, "text"));
    g_assert_false(g_settings_set_int(settings, "number", 3));
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 99);
    g_settings_reset(settings, "number");
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 99);
    /* The administrator's default, hidden by the user's value until that is reset. */
    char *text = g_settings_get_string(settings, "text");
    g_assert_cmpstr(text, ==, "the administrator's");
    g_free(text);
    g_assert_true(g_settings_set_string(settings, "text", "mine"));
    GVariant *value = g_settings_get_default_value(settings, "text");
    g_assert_cmpstr(g_variant_get_string(value, NULL), ==, "the administrator's");
    g_variant_unref(value);
    g_settings_reset(settings, "text");
    text = g_settings_get_string(settings, "text");
    g_assert_cmpstr(text, ==, "the administrator's");
    g_free(text);
    /* One locked key among several: nothing is changed. */
    g_settings_delay(settings);
    g_settings_set_string(settings, "text", "half");
    g_settings_apply(settings);
    g_settings_sync();
    expect_output("dconf read /org/unjank/test/text", "'half'");
    g_object_unref(settings);
}

/* No bus: nothing waits, and what was changed goes back with a warning. */
static void test_no_bus(void)
{
    GSettings *settings = open_settings();
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    gint64 begin = g_get_monotonic_time();
    g_assert_true(g_settings_set_int(settings, "number", 6));
    g_assert_cmpint(g_get_monotonic_time() - begin, <, G_USEC_PER_SEC);
    g_settings_sync();
    WAIT_UNTIL(g_settings_get_int(settings, "number") == 5);
    WAIT_UNTIL(changed_count == 2);
    g_object_unref(settings);
}

static void write_numbers(GSettings *settings, int from, int to, int add)
{
    char key[16];
    for (int number = from; number < to; number++) {
        g_snprintf(key, sizeof key, "k%d", number);
        if (!g_settings_set_int(settings, key, number + add))
            g_error("%s cannot be set", key);
        /* The program sees its own change at once, whatever the service does. */
        if (g_settings_get_int(settings, key) != number + add)
            g_error("%s is %d", key, g_settings_get_int(settings, key));
    }
}

/* All numbers are in the database, as another reader sees it. */
static void expect_numbers(int add)
{
    char *dump = run("dconf dump /org/unjank/test/");
    GKeyFile *file = g_key_file_new();
    g_assert_true(g_key_file_load_from_data(file, dump, -1, G_KEY_FILE_NONE, NULL));
    char key[16];
    for (int number = 0; number < WRITES; number++) {
        g_snprintf(key, sizeof key, "k%d", number);
        if (g_key_file_get_integer(file, "/", key, NULL) != number + add)
            g_error("%s is %d", key, g_key_file_get_integer(file, "/", key, NULL));
    }
    g_key_file_free(file);
    g_free(dump);
}

/* The service is stopped while the program reads and writes. */
static void test_stopped(void)
{
    GSettings *settings = open_settings();
    write_numbers(settings, 0, 10, 1);
    g_settings_sync();
    pid_t process = service();
    kill(process, SIGSTOP);
    gint64 begin = g_get_monotonic_time();
    write_numbers(settings, 0, WRITES, 2);
    g_assert_cmpint(g_get_monotonic_time() - begin, <, 5 * G_USEC_PER_SEC);
    kill(process, SIGCONT);
    g_settings_sync();
    expect_numbers(2);
    g_object_unref(settings);
}

/* The service is killed in the middle of 1,000 writes; the next one has them all. */
static void test_killed(void)
{
    GSettings *settings = open_settings();
    write_numbers(settings, 0, 10, 1);
    g_settings_sync();
    for (int round = 0; round < 5; round++) {
        write_numbers(settings, 0, WRITES, round * 10);
        kill(service(), SIGKILL);
        g_settings_sync();
        write_numbers(settings, 0, 1, round * 10);
        g_settings_sync();
        expect_numbers(round * 10);
    }
    /* Stopped with a request in it, then killed. */
    pid_t process = service();
    kill(process, SIGSTOP);
    write_numbers(settings, 0, WRITES, 5000);
    kill(process, SIGKILL);
    g_settings_sync();
    expect_numbers(5000);
    g_object_unref(settings);
}

static void *write_quarter(void *data)
{
    GSettings *settings = g_settings_new("org.unjank.test");
    int from = GPOINTER_TO_INT(data) * WRITES / 4;
    for (int round = 0; round < 4; round++)
        write_numbers(settings, from, from + WRITES / 4, round);
    g_object_unref(settings);
    return NULL;
}

/* 1,000 writes in flight from four threads, beside another process that writes all the time. */
static void test_threads(void)
{
    int status;
    GSettings *settings = open_settings();
    pid_t other = fork();
    if (other == 0) {
        for (int number = 0;; number++) {
            char command[96];
            g_snprintf(command, sizeof command, "dconf write /org/unjank/test/fence %d", number);
            if (system(command) != 0)
                _exit(1);
        }
    }
    GThread *threads[4];
    for (int thread = 0; thread < 4; thread++)
        threads[thread] = g_thread_new("writer", write_quarter, GINT_TO_POINTER(thread));
    for (int thread = 0; thread < 4; thread++)
        g_thread_join(threads[thread]);
    g_settings_sync();
    kill(other, SIGKILL);
    waitpid(other, &status, 0);
    expect_numbers(3);
    g_object_unref(settings);
}

/* The database is damaged under the running program: it goes on, and the service mends the file. */
static void test_damaged(void)
{
    GSettings *settings = open_settings();
    write_numbers(settings, 0, 10, 1);
    g_settings_sync();
    char *path = g_build_filename(g_get_user_config_dir(), "dconf", "user", NULL);
    char *flag = g_build_filename(g_get_user_runtime_dir(), "dconf", "user", NULL);
    static const char *const damages[] = {"", "GVariant", "no database at all, but some text",
                                          "GVariant\0\0\0\0\0\0\0\0\x18\0\0\0\xff\xff\xff\x7f"};
    static const size_t lengths[] = {0, 8, 33, 24};
    for (int damage = 0; damage < 4; damage++) {
        /* A reader makes the flag when it reads. */
        g_settings_get_int(settings, "k1");
        g_assert_true(g_file_set_contents(path, damages[damage], lengths[damage], NULL));
        /* The flag is raised as a service raises it, so that the program looks. */
        int file = g_open(flag, O_RDWR);
        g_assert_cmpint(pwrite(file, "\1", 1, 0), ==, 1);
        close(file);
        g_unlink(flag);
        int value = g_settings_get_int(settings, "k1");
        g_assert_true(value == 0 || value == 2);
        g_assert_true(g_settings_set_int(settings, "number", 30 + damage));
        g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 30 + damage);
        g_settings_sync();
        g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 30 + damage);
    }
    g_free(path);
    g_free(flag);
    g_object_unref(settings);
}

/* Nothing can be written: the change goes back. */
static void test_read_only(void)
{
    GSettings *settings = open_settings();
    g_assert_true(g_settings_set_int(settings, "number", 8));
    g_settings_sync();
    /* It is told of its own change and, after the warning, of the way back. */
    WAIT_UNTIL(changed_count >= 2);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    g_object_unref(settings);
}

/* A forked child reads and writes. */
static void test_fork(void)
{
    GSettings *settings = open_settings();
    g_settings_set_int(settings, "number", 40);
    g_settings_sync();
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        if (g_settings_get_int(settings, "number") != 40)
            _exit(1);
        if (!g_settings_set_int(settings, "number", 41) ||
            g_settings_get_int(settings, "number") != 41)
            _exit(2);
        g_settings_sync();
        _exit(g_settings_get_int(settings, "number") == 41 ? 0 : 3);
    }
    int status;
    waitpid(child, &status, 0);
    g_assert_cmpint(status, ==, 0);
    expect_output("dconf read /org/unjank/test/number", "41");
    WAIT_UNTIL(g_settings_get_int(settings, "number") == 41);
    g_object_unref(settings);
}

/* The text file of GLib's own backend for sandboxes, beside that backend in another process. */
static void test_keyfile(void)
{
    GSettings *settings = open_settings();
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 5);
    g_assert_true(g_settings_is_writable(settings, "number"));
    gint64 begin = g_get_monotonic_time();
    write_numbers(settings, 0, WRITES, 1);
    g_assert_cmpint(g_get_monotonic_time() - begin, <, 5 * G_USEC_PER_SEC);
    g_assert_cmpint(changed_count, ==, WRITES);
    g_assert_true(g_settings_set_string(settings, "text", "a \"quoted\" text\n"));
    g_settings_set_int(settings, "number", 6);
    g_settings_reset(settings, "number");
    g_settings_sync();
    while (g_main_context_iteration(NULL, FALSE)) {
    }
    changed_count = 0;
    static const char get[] = "env GSETTINGS_BACKEND=keyfile gsettings get org.unjank.test ";
    char *command = g_strconcat(get, "k999", NULL);
    expect_output(command, "1000");
    command = g_strconcat(get, "number", NULL);
    expect_output(command, "5");
    command = g_strconcat(get, "text", NULL);
    expect_output(command, "'a \"quoted\" text\\n'");
    run("env GSETTINGS_BACKEND=keyfile gsettings set org.unjank.test number 44");
    WAIT_UNTIL(changed_count > 0);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 44);
    g_assert_cmpstr(last_changed, ==, "number");
    /* Each writes what the other did not. */
    for (int round = 0; round < 20; round++) {
        g_settings_set_int(settings, "k1", round + 100);
        g_settings_sync();
        run("env GSETTINGS_BACKEND=keyfile gsettings set org.unjank.test number 45");
        run("env GSETTINGS_BACKEND=unjank-keyfile gsettings set org.unjank.test k2 55");
        command = g_strconcat(get, "k2", NULL);
        expect_output(command, "55");
    }
    WAIT_UNTIL(g_settings_get_int(settings, "k2") == 55);
    g_assert_cmpint(g_settings_get_int(settings, "k1"), ==, 119);
    g_assert_cmpint(g_settings_get_int(settings, "number"), ==, 45);
    g_settings_delay(settings);
    g_settings_set_int(settings, "k1", 1);
    g_settings_set_int(settings, "k2", 2);
    g_settings_apply(settings);
    /* No sync: the end of the program writes what is left. */
}

/* Whether a descriptor of the program other than this one is of the same file. */
static gboolean is_open_elsewhere(int descriptor)
{
    GStatBuf of, other;
    gboolean found = FALSE;
    char path[64];
    g_snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    g_assert_cmpint(g_stat(path, &of), ==, 0);
    for (int number = 0; number < 256; number++) {
        g_snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        found |= number != descriptor && g_stat(path, &other) == 0 && other.st_dev == of.st_dev &&
                 other.st_ino == of.st_ino;
    }
    return found;
}

/* Changes a key and returns when the thread has begun to write it and waits for its turn, which is ours. */
static void begin_write(GSettings *settings, int turn, const char *key, int value)
{
    g_assert_cmpint(flock(turn, LOCK_EX), ==, 0);
    WAIT_UNTIL(!is_open_elsewhere(turn));
    g_assert_true(g_settings_set_int(settings, key, value));
    WAIT_UNTIL(is_open_elsewhere(turn));
}

static void expect_written(const char *key, const char *value)
{
    char *command = g_strconcat("env GSETTINGS_BACKEND=keyfile gsettings get org.unjank.test ", key, NULL);
    expect_output(command, value);
    g_free(command);
}

static void wait_for_child(pid_t child)
{
    int status;
    g_assert_cmpint(waitpid(child, &status, 0), ==, child);
    g_assert_cmpint(status, ==, 0);
}

/* Children that are forked while the thread of their parent writes: they end, and undo nothing. */
static void test_keyfile_fork(void)
{
    GSettings *settings = open_settings();
    char *directory = g_build_filename(g_get_user_config_dir(), "glib-2.0", "settings", NULL);
    g_assert_true(g_settings_set_int(settings, "k0", 1));
    g_settings_sync();
    int turn = g_open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), told[2];
    char byte = 0;
    /* One that does nothing but read and end. */
    begin_write(settings, turn, "k1", 7);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        if (g_settings_get_int(settings, "k1") != 7)
            _exit(1);
        exit(0);
    }
    wait_for_child(child);
    g_assert_cmpint(flock(turn, LOCK_UN), ==, 0);
    g_settings_sync();
    expect_written("k1", "7");
    /* One that writes after its parent has written the same key again. */
    begin_write(settings, turn, "k1", 8);
    g_assert_cmpint(pipe(told), ==, 0);
    child = fork();
    if (child == 0) {
        alarm(30);
        close(told[1]);
        if (g_settings_get_int(settings, "k1") != 8 || read(told[0], &byte, 1) != 0)
            _exit(1);
        g_settings_set_int(settings, "k2", 20);
        exit(0);
    }
    g_assert_cmpint(flock(turn, LOCK_UN), ==, 0);
    g_settings_set_int(settings, "k1", 9);
    g_settings_sync();
    close(told[1]);
    close(told[0]);
    wait_for_child(child);
    expect_written("k1", "9");
    expect_written("k2", "20");
    /* One whose parent ends without having written, as one that becomes a daemon. */
    g_assert_cmpint(pipe(told), ==, 0);
    child = fork();
    if (child == 0) {
        alarm(30);
        close(told[0]);
        begin_write(settings, turn, "k3", 30);
        pid_t parent = getpid();
        if (fork() != 0)
            _exit(0);
        alarm(30);
        WAIT_UNTIL(getppid() != parent);
        flock(turn, LOCK_UN);
        g_settings_sync();
        _exit(write(told[1], &byte, 1) != 1);
    }
    close(told[1]);
    wait_for_child(child);
    g_assert_cmpint(read(told[0], &byte, 1), ==, 1);
    close(told[0]);
    expect_written("k3", "30");
    /* Those that live on do not keep the turn in which they were forked. */
    for (int round = 0; round < 20; round++) {
        write_numbers(settings, 0, 50, round);
        for (int look = 0; look < 20000 && flock(turn, LOCK_EX | LOCK_NB) == 0; look++)
            flock(turn, LOCK_UN);
        flock(turn, LOCK_UN);
        g_assert_cmpint(pipe(told), ==, 0);
        child = fork();
        if (child == 0) {
            alarm(60);
            close(told[1]);
            exit(read(told[0], &byte, 1) != 0);
        }
        g_settings_sync();
        g_assert_cmpint(flock(turn, LOCK_EX | LOCK_NB), ==, 0);
        g_assert_cmpint(flock(turn, LOCK_UN), ==, 0);
        close(told[0]);
        close(told[1]);
        wait_for_child(child);
    }
    g_free(directory);
    g_object_unref(settings);
}

/* As test_closed, with the text file. */
static void test_keyfile_closed(void)
{
    GSettings *settings = open_settings();
    write_numbers(settings, 0, 10, 1);
    g_settings_sync();
    for (int descriptor = 3; descriptor < 100; descriptor++)
        close(descriptor);
    write_numbers(settings, 0, 10, 2);
    g_settings_sync();
    expect_output("gsettings get org.unjank.test k1", "3");
    write_numbers(settings, 0, 10, 3);
    _exit(puts("good") < 0 || fflush(stdout) != 0);
}

/* What the program before left is there. */
static void test_keyfile_again(void)
{
    GSettings *settings = open_settings();
    g_assert_cmpint(g_settings_get_int(settings, "k1"), ==, 1);
    g_assert_cmpint(g_settings_get_int(settings, "k2"), ==, 2);
    g_assert_cmpint(g_settings_get_int(settings, "k3"), ==, 4);
    g_object_unref(settings);
}

/* A program closes all descriptors, those of the module, too, as some do that become daemons. */
static void test_closed(void)
{
    GSettings *settings = open_settings();
    write_numbers(settings, 0, 10, 1);
    g_settings_sync();
    for (int descriptor = 3; descriptor < 100; descriptor++)
        close(descriptor);
    clock_t begin = clock();
    g_usleep(500000);
    g_assert_cmpint(clock() - begin, <, CLOCKS_PER_SEC / 4);
    write_numbers(settings, 0, 10, 2);
    g_settings_sync();
    write_numbers(settings, 0, 10, 3);
    g_settings_sync();
    g_assert_cmpint(g_settings_get_int(settings, "k1"), ==, 4);
    expect_output("dconf read /org/unjank/test/k1", "4");
    _exit(puts("good") < 0 || fflush(stdout) != 0);
}

/* Says which backend there is. */
static void test_type(void)
{
    GSettingsBackend *backend = g_settings_backend_get_default();
    puts(G_OBJECT_TYPE_NAME(backend));
    g_object_unref(backend);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {
        {"ordinary", test_ordinary}, {"watches", test_watches}, {"locks", test_locks},
        {"no-bus", test_no_bus},     {"stopped", test_stopped}, {"killed", test_killed},
        {"threads", test_threads},   {"damaged", test_damaged}, {"read-only", test_read_only},
        {"fork", test_fork},         {"closed", test_closed},
        {"keyfile", test_keyfile},   {"keyfile-again", test_keyfile_again},
        {"keyfile-closed", test_keyfile_closed}, {"keyfile-fork", test_keyfile_fork},
        {"type", test_type},
    };
    for (size_t test = 0; test < G_N_ELEMENTS(tests); test++) {
        if (count == 2 && strcmp(tests[test].name, arguments[1]) == 0) {
            tests[test].run();
            puts("good");
            return 0;
        }
    }
    fprintf(stderr, "usage: backend NAME\n");
    return 2;
}
