/* Uses the settings of libunjank, rightly and wrongly. Run in a session of its own, as: settings (bus | nobus) */
#define _GNU_SOURCE
#include <unjank.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void nothing_is_set_and_nothing_can_be_without_a_bus(unjank_settings *settings)
{
    int truth = 7;
    CHECK(unjank_settings_get_boolean(settings, "/org/example/truth", &truth) == -ENOENT && truth == 7);
    unjank_change change = {"/org/example/truth", "true"};
    CHECK(unjank_settings_write(settings, &change, 1, -1) == -ENOTCONN);
    CHECK(unjank_settings_get_boolean(settings, "/org/example/truth", &truth) == -ENOENT);
}

static void wrong_use_is_an_error(unjank_settings *settings)
{
    const char *text = "before";
    const char *const *names;
    size_t count;
    unjank_value value = {.size = sizeof value};
    CHECK(unjank_settings_get_string(settings, "relative", &text) == -EINVAL);
    CHECK(unjank_settings_get_string(settings, "/directory/", &text) == -EINVAL);
    CHECK(unjank_settings_get_string(settings, NULL, &text) == -EINVAL);
    CHECK(unjank_settings_get_string(settings, "/\xff", &text) == -EINVAL && strcmp(text, "before") == 0);
    CHECK(unjank_settings_get(settings, "/a", 9, &value) == -EINVAL);
    CHECK(unjank_settings_list(settings, "/a", &names, &count) == -EINVAL);
    CHECK(unjank_settings_watch(settings, "a") == -EINVAL);
    CHECK(unjank_settings_write(settings, NULL, 1, -1) == -EINVAL);
    unjank_change wrong[] = {{"/org/example/good", "1"}, {"/org/example/bad", "nonsense["}};
    CHECK(unjank_settings_write(settings, wrong, 2, -1) == -EINVAL);
    CHECK(strstr(unjank_error_text(), "/org/example/bad") != NULL);
    unjank_change directory = {"/org/example/", "1"};
    CHECK(unjank_settings_write(settings, &directory, 1, -1) == -EINVAL);
    CHECK(unjank_settings_write(settings, NULL, 0, -1) == 0);
    char *garbage = malloc(10000001);
    memset(garbage, '/', 10000000);
    garbage[10000000] = 0;
    CHECK(unjank_settings_get_string(settings, garbage, &text) == -ENAMETOOLONG);
    free(garbage);
    CHECK(unjank_settings_get_string(NULL, "/a", &text) == -EBADF);
    CHECK(unjank_settings_close((unjank_settings *)0x1230) == -EBADF);
}

static void what_is_written_is_read(unjank_settings *settings)
{
    unjank_change changes[] = {
        {"/org/example/truth", "true"},          {"/org/example/number", "uint16 65535"},
        {"/org/example/large", "uint64 18446744073709551615"},
        {"/org/example/part", "0.25"},           {"/org/example/name", "'caf\xc3\xa9'"},
        {"/org/example/list/names", "['a', 'b']"},
    };
    CHECK(unjank_settings_write(settings, changes, 6, -1) == 0);
    int truth;
    int64_t number;
    double part;
    const char *text;
    CHECK(unjank_settings_get_boolean(settings, "/org/example/truth", &truth) == 0 && truth == 1);
    CHECK(unjank_settings_get_integer(settings, "/org/example/number", &number) == 0 && number == 65535);
    CHECK(unjank_settings_get_integer(settings, "/org/example/large", &number) == -ERANGE);
    CHECK(unjank_settings_get_double(settings, "/org/example/part", &part) == 0 && part > 0.2 && part < 0.3);
    CHECK(unjank_settings_get_string(settings, "/org/example/name", &text) == 0 && strcmp(text, "caf\xc3\xa9") == 0);
    CHECK(unjank_settings_get_string(settings, "/org/example/truth", &text) == -EPROTOTYPE);
    CHECK(unjank_settings_get_integer(settings, "/org/example/name", &number) == -EPROTOTYPE);
    CHECK(unjank_settings_get_text(settings, "/org/example/list/names", UNJANK_IN_FORCE, &text) == 0);
    CHECK(strcmp(text, "['a', 'b']") == 0);
    unjank_value value = {.size = sizeof value};
    CHECK(unjank_settings_get(settings, "/org/example/list/names", UNJANK_USER_VALUE, &value) == 0);
    CHECK(strcmp(value.type, "as") == 0 && value.length == 6 && memcmp(value.data, "a\0b\0\2\4", 6) == 0);
    CHECK(unjank_settings_get(settings, "/org/example/truth", UNJANK_DEFAULT_VALUE, &value) == -ENOENT);
    CHECK(unjank_settings_is_writable(settings, "/org/example/truth") == 1);
    const char *const *names;
    size_t count;
    CHECK(unjank_settings_list(settings, "/org/example/", &names, &count) == 0 && count == 6);
    CHECK(strcmp(names[0], "large") == 0 && strcmp(names[1], "list/") == 0);
}

/* Waits until a key is told as changed. */
static void wait_for(unjank_settings *settings, const char *key)
{
    struct pollfd ready = {.fd = unjank_settings_fd(settings), .events = POLLIN};
    for (;;) {
        const char *const *keys;
        size_t count;
        CHECK(poll(&ready, 1, 30000) == 1);
        CHECK(unjank_settings_changed(settings, &keys, &count) == 0);
        for (size_t at = 0; at < count; at++)
            if (strcmp(keys[at], key) == 0)
                return;
    }
}

static void changes_of_every_program_are_told(unjank_settings *settings)
{
    const char *const *keys;
    size_t count;
    CHECK(unjank_settings_changed(settings, &keys, &count) == 0);
    for (size_t at = 0; at < count; at++)
        CHECK(strncmp(keys[at], "/org/example/", 13) == 0);
    CHECK(unjank_settings_changed(settings, &keys, &count) == 0 && count == 0);
    CHECK(system("dconf write /org/other/unwatched 3") == 0);
    CHECK(system("dconf write /org/example/list/more 4") == 0);
    wait_for(settings, "/org/example/list/more");
    int64_t number;
    CHECK(unjank_settings_get_integer(settings, "/org/example/list/more", &number) == 0 && number == 4);
    unjank_change reset = {"/org/example/list/", NULL};
    CHECK(unjank_settings_write(settings, &reset, 1, -1) == 0);
    wait_for(settings, "/org/example/list/names");
    CHECK(unjank_settings_get_integer(settings, "/org/example/list/more", &number) == -ENOENT);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    unjank_settings *settings;
    CHECK(unjank_settings_open(NULL, NULL) == -EINVAL);
    CHECK(unjank_settings_open(NULL, &settings) == 0);
    wrong_use_is_an_error(settings);
    if (strcmp(arguments[1], "nobus") == 0) {
        nothing_is_set_and_nothing_can_be_without_a_bus(settings);
    } else {
        /* Before there is a database, and even a directory for it. */
        CHECK(unjank_settings_watch(settings, "/org/example/") == 0);
        what_is_written_is_read(settings);
        changes_of_every_program_are_told(settings);
    }
    CHECK(unjank_settings_close(settings) == 0);
    CHECK(unjank_settings_close(settings) == -EBADF);
    puts("good");
    return 0;
}
