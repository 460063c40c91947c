/* Uses every part of libunjank as a program would, and as it should not. Run as: smoke DIRECTORY [few|many]: under a tool that
   watches the memory, and with how many rows to be put in order. */
#define _GNU_SOURCE
#include <unjank.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static char directory[3000];

/* How many rows are put in order in slices, and how often. */
static unsigned many = 6000, orders = 20;

static void in_directory(char *path, size_t room, const char *name)
{
    snprintf(path, room, "%s/%s", directory, name);
}

static void make_file(const char *name, size_t length)
{
    char path[4096];
    in_directory(path, sizeof path, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    CHECK(fd >= 0);
    CHECK(ftruncate(fd, (off_t)length) == 0);
    close(fd);
}

static unjank_listing *open_listing(uint32_t fields, uint32_t flags)
{
    unjank_listing_options options = {.size = sizeof options, .fields = fields, .flags = flags};
    unjank_listing *listing = NULL;
    CHECK(unjank_listing_open(directory, &options, &listing) == 0);
    CHECK(listing != NULL);
    return listing;
}

/* Reads a listing to its end and returns the number of entries. */
static uint32_t finish(unjank_listing *listing)
{
    unjank_event event = {.size = sizeof event};
    int more;
    uint32_t done = UINT32_MAX;
    while ((more = unjank_listing_next(listing, 60000, &event)) > 0)
        if (event.type == UNJANK_DONE)
            done = event.count;
    CHECK(more == 0);
    CHECK(done != UINT32_MAX);
    return done;
}

/* Compares every column with readdir and fstatat. */
static void columns_are_what_the_system_says(void)
{
    unjank_listing *listing = open_listing(UNJANK_DEFAULT_FIELDS | UNJANK_LINKS, 0);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unjank_event event = {.size = sizeof event};
    uint32_t named = 0, sized = 0, failed = 0;
    while (unjank_listing_next(listing, 60000, &event) > 0) {
        if (event.type == UNJANK_NAMES) {
            unjank_names names = {.size = sizeof names};
            CHECK(unjank_listing_names(listing, event.first, &names) == 0);
            CHECK(names.first == event.first && names.count == event.count);
            for (uint32_t row = 0; row < names.count; row++) {
                CHECK(strlen(unjank_name(&names, row)) == unjank_name_length(&names, row));
                struct stat status;
                CHECK(fstatat(fd, unjank_name(&names, row), &status, AT_SYMLINK_NOFOLLOW) == 0);
                CHECK(names.types[row] == IFTODT(status.st_mode));
                named++;
            }
        } else if (event.type == UNJANK_ATTRIBUTES) {
            unjank_attributes columns = {.size = sizeof columns};
            CHECK(unjank_listing_attributes(listing, &columns) == 0);
            CHECK(columns.count == event.count && columns.links && !columns.blocks);
            failed += columns.failures;
            for (uint32_t row = 0; row < columns.count; row++) {
                uint32_t id = columns.ids ? columns.ids[row] : columns.first + row;
                unjank_entry entry = {.size = sizeof entry};
                CHECK(unjank_listing_entry(listing, id, &entry) == 0);
                struct stat status;
                CHECK(fstatat(fd, entry.name, &status, AT_SYMLINK_NOFOLLOW) == 0);
                unjank_time modified = unjank_unpack_time(columns.modified[row]);
                CHECK(modified.known && modified.seconds == status.st_mtim.tv_sec);
                CHECK(modified.nanoseconds == (uint32_t)status.st_mtim.tv_nsec);
                int64_t nanoseconds = 0;
                CHECK(unjank_unpack_times(&columns.modified[row], 1, &nanoseconds) == 0);
                CHECK(nanoseconds == modified.seconds * 1000000000 + modified.nanoseconds);
                CHECK(columns.bytes[row] == (uint64_t)status.st_size && columns.bytes[row] == entry.bytes);
                CHECK(columns.mode[row] == status.st_mode && entry.mode == status.st_mode);
                CHECK(columns.owner[row] == ((uint64_t)status.st_uid << 32 | status.st_gid));
                CHECK(columns.inode[row] == status.st_ino && columns.links[row] == status.st_nlink);
                CHECK(entry.modified.seconds == modified.seconds && entry.user == status.st_uid);
                sized++;
            }
        }
    }
    close(fd);
    unjank_entry entry = {.size = sizeof entry};
    CHECK(unjank_listing_entry(listing, named, &entry) == -ENOENT);
    CHECK(named > 0 && named == sized && failed == 0);
    /* Those of the first rows again: nothing that was lent is false after that. */
    uint32_t ids[] = {5, 3, 4, 1000000};
    CHECK(unjank_listing_want(listing, ids, 4) == 0);
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_ATTRIBUTES);
    CHECK(event.count == 3 && event.ids && event.ids[0] == 5);
    CHECK(unjank_listing_close(listing) == 0);
}

static void whole_columns_of_times_are_unpacked(void)
{
    uint64_t packed[] = {UINT64_C(2147483648) << 30 | 5, UINT64_C(2147483647) << 30 | 999999999, UINT64_MAX,
                         UINT64_MAX - 1, UINT64_C(11370856883) << 30};
    int64_t times[] = {7, 7, 7, 7, 7};
    CHECK(unjank_unpack_times(packed, 5, times) == 3);
    CHECK(times[0] == 5 && times[1] == -1);
    CHECK(times[2] == INT64_MIN && times[3] == INT64_MIN && times[4] == INT64_MIN);
    CHECK(unjank_unpack_times(NULL, 0, NULL) == 0);
    CHECK(unjank_unpack_times(NULL, 1, times) == -EINVAL && unjank_unpack_times(packed, 1, NULL) == -EINVAL);
    CHECK(unjank_unpack_times(packed, SIZE_MAX, times) == -EINVAL);
}

static void names_of_any_bytes_arrive_as_they_are(void)
{
    unjank_listing *listing = open_listing(0, 0);
    uint32_t count = finish(listing), found = 0;
    unjank_names names = {.size = sizeof names};
    for (uint32_t id = 0; id < count; id = names.first + names.count) {
        CHECK(unjank_listing_names(listing, id, &names) == 0);
        for (uint32_t row = 0; row < names.count; row++)
            found += strcmp(unjank_name(&names, row), "bad\xff\xfe\nname") == 0;
    }
    CHECK(found == 1);
    CHECK(unjank_listing_close(listing) == 0);
}

static void a_link_says_where_it_leads(void)
{
    char path[4096];
    in_directory(path, sizeof path, "link");
    CHECK(symlink("nowhere/at all", path) == 0);
    unjank_listing *listing = open_listing(UNJANK_TARGET | UNJANK_OWNER_NAMES, 0);
    uint32_t count = finish(listing), links = 0;
    for (uint32_t id = 0; id < count; id++) {
        unjank_entry entry = {.size = sizeof entry};
        CHECK(unjank_listing_entry(listing, id, &entry) == 0);
        const char *text;
        size_t length;
        if (entry.type == DT_LNK) {
            CHECK(unjank_listing_text(listing, entry.target, &text, &length) == 0);
            CHECK(length == 14 && memcmp(text, "nowhere/at all", length) == 0);
            links++;
        }
        int has_name = unjank_listing_owner_name(listing, 0, entry.user, &text, &length);
        CHECK(has_name == 0 || has_name == -ENOENT);
        CHECK(unjank_listing_text(listing, 0, &text, &length) == -ENOENT);
    }
    CHECK(links == 1);
    CHECK(unjank_listing_close(listing) == 0);
    CHECK(unlink(path) == 0);
}

static void a_model_is_sorted_and_filtered(void)
{
    unjank_listing *listing = open_listing(UNJANK_SIZE, 0);
    unjank_model_options options = {.size = sizeof options, .locale = "en_GB.UTF-8"};
    unjank_model *model = NULL;
    CHECK(unjank_model_open(listing, &options, &model) == 0);
    uint32_t count = finish(listing), rows, given, ids[64], row;
    unjank_row_change changes[16];
    CHECK(unjank_model_changes(model, changes, 16) >= 1);
    CHECK(unjank_model_changes(model, changes, 16) == 0);
    CHECK(unjank_model_rows(model, &rows) == 0 && rows == count - 1); /* one is hidden */
    options.by = UNJANK_BY_SIZE;
    options.flags = UNJANK_DESCENDING | UNJANK_DIRECTORIES_MIXED;
    options.filter = "file 1";
    CHECK(unjank_model_set(model, &options) == 0);
    CHECK(unjank_model_changes(model, changes, 16) == 1 && changes[0].type == UNJANK_ROWS_RESET);
    uint64_t last = UINT64_MAX;
    CHECK(unjank_model_rows(model, &rows) == 0 && rows > 0 && rows < count);
    for (uint32_t at = 0; at < rows; at += given) {
        CHECK(unjank_model_ids(model, at, 64, ids, &given) == 0 && given > 0);
        for (uint32_t place = 0; place < given; place++) {
            unjank_entry entry = {.size = sizeof entry};
            CHECK(unjank_listing_entry(listing, ids[place], &entry) == 0);
            CHECK(entry.bytes <= last && strstr(entry.name, "file 1"));
            last = entry.bytes;
            CHECK(unjank_model_row(model, ids[place], &row) == 0 && row == at + place);
        }
    }
    CHECK(unjank_model_ids(model, rows, 64, ids, &given) == 0 && given == 0);
    options.by = 77;
    CHECK(unjank_model_set(model, &options) == -EINVAL);
    CHECK(unjank_listing_close(listing) == 0);
    CHECK(unjank_model_rows(model, &rows) == -EBADF);
    CHECK(unjank_model_close(model) == 0);
    CHECK(unjank_model_close(model) == -EBADF);
}

#define MOST 6100

static void make_many(unsigned number, unsigned size)
{
    char name[64];
    snprintf(name, sizeof name, "many/of a common start %05u.%s", number, number % 3 ? "txt" : "c");
    make_file(name, size);
}

/* Both models show the same entries in the same rows. */
static void expect_same_rows(unjank_model *one, unjank_model *other)
{
    static uint32_t ids[2][MOST];
    uint32_t given[2];
    CHECK(unjank_model_ids(one, 0, MOST, ids[0], &given[0]) == 0);
    CHECK(unjank_model_ids(other, 0, MOST, ids[1], &given[1]) == 0);
    CHECK(given[0] == given[1] && given[0] > 100);
    CHECK(memcmp(ids[0], ids[1], given[0] * sizeof ids[0][0]) == 0);
}

static void many_rows_are_put_in_order_in_slices(void)
{
    char path[4096], name[64], later[4096];
    in_directory(path, sizeof path, "many");
    CHECK(mkdir(path, 0700) == 0);
    for (unsigned number = 0; number < many; number++)
        make_many(number, number * 7919 % 50);
    unjank_listing_options how = {.size = sizeof how, .fields = UNJANK_SIZE | UNJANK_MODIFIED, .flags = UNJANK_FOLLOW};
    unjank_listing *listing;
    CHECK(unjank_listing_open(path, &how, &listing) == 0);
    unjank_model *whole, *sliced;
    unjank_model_options options = {.size = sizeof options, .locale = "en_GB.UTF-8"};
    CHECK(unjank_model_open(listing, &options, &whole) == 0);
    CHECK(unjank_model_open(listing, &options, &sliced) == 0);
    unjank_event event = {.size = sizeof event};
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_DONE);
    struct pollfd ready = {.fd = unjank_listing_fd(listing), .events = POLLIN};
    unjank_row_change changes[4];
    unsigned slices = 0;
    for (unsigned round = 0; round < orders; round++) {
        while (unjank_listing_next(listing, 0, &event) > 0) {
        }
        uint32_t before[2], after[2], given;
        while (unjank_model_changes(sliced, changes, 4) > 0) {
        }
        CHECK(unjank_model_ids(sliced, 0, 2, before, &given) == 0 && given == 2);
        options.by = (round + 1) % 9;
        options.flags = round % 2 ? UNJANK_DESCENDING : 0;
        options.filter = round >= orders * 3 / 4 ? "7" : NULL;
        CHECK(unjank_model_set(whole, &options) == 0);
        options.flags |= UNJANK_IN_SLICES;
        CHECK(unjank_model_set(sliced, &options) == 1);
        /* The view has what it had, and the main loop is told that there is something to do. */
        CHECK(unjank_model_ids(sliced, 0, 2, after, &given) == 0 && given == 2);
        CHECK(memcmp(before, after, sizeof before) == 0 && unjank_model_changes(sliced, changes, 4) == 0);
        CHECK(poll(&ready, 1, 0) == 1);
        if (round % 4 == 1) {
            /* Meanwhile one goes, one comes, one has another name and one another size. */
            snprintf(name, sizeof name, "many/of a common start %05u.%s", round, round % 3 ? "txt" : "c");
            in_directory(path, sizeof path, name);
            CHECK(unlink(path) == 0);
            make_many(many + round, 7);
            make_many(100 + round, 5000 + round);
            snprintf(name, sizeof name, "many/of a common start %05u.%s", 200 + round, (200 + round) % 3 ? "txt" : "c");
            in_directory(path, sizeof path, name);
            snprintf(name, sizeof name, "many/a new name %u", round);
            in_directory(later, sizeof later, name);
            CHECK(rename(path, later) == 0);
        }
        int is_reset = 0, more;
        while ((more = unjank_listing_next(listing, is_reset ? 0 : round % 5 == 4, &event)) > 0 || !is_reset) {
            slices += more > 0 && event.type == UNJANK_SORTED;
            for (int told = unjank_model_changes(sliced, changes, 4); told > 0; told = 0)
                is_reset |= changes[0].type == UNJANK_ROWS_RESET;
        }
        expect_same_rows(whole, sliced);
    }
    CHECK(slices > 2 * orders);
    /* The last order counts; going back to the one that is shown ends the work. */
    options.flags = UNJANK_IN_SLICES | UNJANK_DESCENDING;
    uint32_t shown = options.by;
    for (options.by = UNJANK_BY_NAME; options.by < shown; options.by++)
        CHECK(unjank_model_set(sliced, &options) == 1);
    CHECK(unjank_model_set(sliced, &options) == 0);
    expect_same_rows(whole, sliced);
    options.by = UNJANK_BY_SIZE;
    options.filter = NULL;
    CHECK(unjank_model_set(whole, &options) == 1 && unjank_model_set(sliced, &options) == 1);
    options.by = UNJANK_BY_NAME;
    CHECK(unjank_model_set(whole, &options) == 1 && unjank_model_set(sliced, &options) == 1);
    /* A listing that was cancelled, and a call that waits, complete it. */
    CHECK(unjank_listing_cancel(listing) == 0);
    CHECK(unjank_listing_next(listing, 60000, &event) == -ECANCELED);
    expect_same_rows(whole, sliced);
    CHECK(unjank_listing_close(listing) == 0);
    in_directory(path, sizeof path, "many");
    char command[5000];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    CHECK(system(command) == 0);
}

static void changes_are_followed_by_a_main_loop(void)
{
    unjank_listing *listing = open_listing(UNJANK_SIZE, UNJANK_FOLLOW);
    unjank_model *model;
    CHECK(unjank_model_open(listing, NULL, &model) == 0);
    unjank_event event = {.size = sizeof event};
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_DONE);
    while (unjank_listing_next(listing, 0, &event) > 0) {
    }
    uint32_t rows, then;
    CHECK(unjank_model_rows(model, &rows) == 0);
    make_file("a new one", 3);
    struct pollfd ready = {.fd = unjank_listing_fd(listing), .events = POLLIN};
    uint32_t new_id = UINT32_MAX;
    int is_gone = 0;
    while (!is_gone) {
        CHECK(poll(&ready, 1, 60000) == 1);
        while (unjank_listing_next(listing, 0, &event) > 0) {
            if (event.type == UNJANK_NAMES) {
                new_id = event.first;
                char path[4096];
                in_directory(path, sizeof path, "a new one");
                CHECK(unlink(path) == 0);
                CHECK(unjank_model_rows(model, &then) == 0 && then == rows + 1);
            }
            if (event.type == UNJANK_REMOVED && event.ids[0] == new_id)
                is_gone = 1;
        }
    }
    unjank_entry entry = {.size = sizeof entry};
    CHECK(unjank_listing_entry(listing, new_id, &entry) == 0 && entry.removed);
    CHECK(strcmp(entry.name, "a new one") == 0);
    CHECK(unjank_model_rows(model, &then) == 0 && then == rows);
    CHECK(unjank_model_close(model) == 0);
    CHECK(unjank_listing_close(listing) == 0);
}

static void a_directory_that_is_not_there_or_disappears_is_told(void)
{
    unjank_listing *listing;
    unjank_event event = {.size = sizeof event};
    CHECK(unjank_listing_open("/not/there", NULL, &listing) == 0);
    CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    CHECK(event.type == UNJANK_FAILED && event.step == UNJANK_STEP_OPEN && event.error == -ENOENT);
    CHECK(finish(listing) == 0);
    CHECK(unjank_listing_close(listing) == 0);

    char path[4096];
    in_directory(path, sizeof path, "short-lived");
    CHECK(mkdir(path, 0755) == 0);
    unjank_listing_options options = {.size = sizeof options, .flags = UNJANK_FOLLOW};
    CHECK(unjank_listing_open(path, &options, &listing) == 0);
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_DONE);
    CHECK(rmdir(path) == 0);
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_FAILED);
    CHECK(event.step == UNJANK_STEP_GONE && event.error == -ENOENT);
    CHECK(unjank_listing_close(listing) == 0);

    unjank_listing_options few = {.size = sizeof few, .most = 2};
    CHECK(unjank_listing_open("/proc/self", &few, &listing) == 0);
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_FAILED);
    CHECK(event.step == UNJANK_STEP_TOO_LARGE && event.error == -EOVERFLOW);
    CHECK(unjank_listing_close(listing) == 0);
    /* What is not noticed in a directory that is followed is told; all of it is listed. */
    CHECK(unjank_listing_open("/proc/self", &options, &listing) == 0);
    uint32_t listed = 0, told = 0;
    do {
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
        listed += event.type == UNJANK_NAMES ? event.count : 0;
        if (event.type == UNJANK_FAILED) {
            CHECK(event.step == UNJANK_STEP_FOLLOW && event.error == -EOPNOTSUPP);
            told++;
        }
    } while (event.type != UNJANK_DONE);
    CHECK(listed > 10 && told == 1);
    CHECK(unjank_listing_close(listing) == 0);
}

static void wrong_use_is_an_error(void)
{
    unjank_listing *listing = open_listing(0, 0), *other = listing;
    unjank_event event = {.size = sizeof event};
    unjank_names names = {.size = sizeof names};
    unjank_attributes columns = {.size = sizeof columns};
    unjank_entry entry = {.size = 3};
    CHECK(unjank_listing_open(NULL, NULL, &other) == -EINVAL);
    CHECK(unjank_listing_open("", NULL, &other) == -EINVAL && other == listing);
    CHECK(unjank_listing_open("/", NULL, NULL) == -EINVAL);
    CHECK(unjank_listing_next(NULL, 0, &event) == -EBADF);
    CHECK(unjank_listing_next(listing, 0, NULL) == -EINVAL);
    CHECK(unjank_listing_next((unjank_listing *)&event, 0, &event) == -EBADF);
    CHECK(unjank_model_close((unjank_model *)listing) == -EBADF);
    CHECK(unjank_listing_attributes(listing, &columns) == -ENODATA);
    CHECK(unjank_listing_names(listing, UINT32_MAX, &names) == -ENOENT);
    CHECK(finish(listing) > 0);
    CHECK(unjank_listing_entry(listing, 0, &entry) == -EINVAL);
    CHECK(strstr(unjank_error_text(), "size") != NULL);
    CHECK(unjank_listing_want(listing, NULL, 3) == -EINVAL);
    CHECK(unjank_listing_want(listing, NULL, 0) == 0);
    unjank_listing_options options = {.size = sizeof options, .flags = 1u << 31};
    CHECK(unjank_listing_open("/", &options, &other) == -EINVAL);
    size_t length = 10000000;
    char *garbage = malloc(length + 1);
    memset(garbage, 0xfe, length);
    garbage[length] = 0;
    CHECK(unjank_listing_open(garbage, NULL, &other) == -ENAMETOOLONG);
    unjank_model_options rows = {.size = sizeof rows, .filter = garbage};
    unjank_model *model;
    CHECK(unjank_model_open(listing, &rows, &model) == -ENAMETOOLONG);
    garbage[4000] = 0;
    rows.filter = garbage;
    rows.flags = UNJANK_GLOB;
    CHECK(unjank_model_open(listing, &rows, &model) == 0);
    CHECK(unjank_model_close(model) == 0);
    rows.filter = NULL;
    garbage[100] = 0;
    rows.locale = garbage;
    CHECK(unjank_model_open(listing, &rows, &model) == -EINVAL);
    free(garbage);
    CHECK(unjank_listing_close(listing) == 0);
    CHECK(unjank_listing_close(listing) == -EBADF);
    CHECK(unjank_listing_fd(listing) == -EBADF);
    CHECK(unjank_listing_cancel(listing) == -EBADF);
    CHECK(unjank_listing_close(NULL) == -EBADF);
}

static void a_process_without_descriptors_is_told_and_goes_on(void)
{
    struct rlimit before, few;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    unjank_listing *listing = NULL;
    unjank_event event = {.size = sizeof event};
    for (rlim_t count = 3; count < 40; count++) {
        few = before;
        few.rlim_cur = count;
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        int opened = unjank_listing_open(directory, NULL, &listing);
        CHECK(opened == 0 || opened == -EMFILE);
        if (opened == 0) {
            int more;
            while ((more = unjank_listing_next(listing, 60000, &event)) > 0)
                CHECK(event.type != UNJANK_FAILED || event.error == -EMFILE);
            CHECK(more == 0 || more == -EMFILE || more == -ECONNRESET || more == -EBADMSG);
            CHECK(unjank_listing_close(listing) == 0);
        }
    }
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    listing = open_listing(UNJANK_SIZE, 0);
    CHECK(finish(listing) > 0);
    CHECK(unjank_listing_close(listing) == 0);
}

static void *waits_for_ever(void *listing)
{
    unjank_event event = {.size = sizeof event};
    int more;
    /* The other thread looks, too. */
    while ((more = unjank_listing_next(listing, -1, &event)) > 0 || more == -EBUSY) {
    }
    CHECK(strstr(unjank_error_text(), "cancelled") != NULL);
    return (void *)(intptr_t)more;
}

static void *lists_itself(void *unused)
{
    (void)unused;
    for (int time = 0; time < 5; time++) {
        unjank_listing *listing = open_listing(UNJANK_DEFAULT_FIELDS, 0);
        uint32_t count = finish(listing);
        CHECK(count > 0);
        CHECK(unjank_listing_close(listing) == 0);
    }
    return NULL;
}

static void *finishes(void *listing)
{
    uint32_t count = finish(listing);
    unjank_names names = {.size = sizeof names};
    CHECK(unjank_listing_names(listing, 0, &names) == 0 && names.count <= count);
    return listing;
}

static void threads_share_the_library_and_hand_handles_over(void)
{
    pthread_t threads[4];
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&threads[at], NULL, lists_itself, NULL) == 0);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);

    unjank_listing *listing = open_listing(UNJANK_DEFAULT_FIELDS, 0);
    unjank_event event = {.size = sizeof event};
    CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    CHECK(pthread_create(&threads[0], NULL, finishes, listing) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0);
    unjank_entry entry = {.size = sizeof entry};
    CHECK(unjank_listing_entry(listing, 0, &entry) == 0 && entry.fields);
    CHECK(unjank_listing_close(listing) == 0);

    /* A second thread is refused while one waits, and may cancel it. */
    listing = open_listing(0, UNJANK_FOLLOW);
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_DONE);
    void *more;
    CHECK(pthread_create(&threads[0], NULL, waits_for_ever, listing) == 0);
    int busy;
    while ((busy = unjank_listing_entry(listing, 0, &entry)) != -EBUSY) {
        CHECK(busy == 0);
        poll(NULL, 0, 1);
    }
    CHECK(unjank_listing_cancel(listing) == 0);
    CHECK(pthread_join(threads[0], &more) == 0 && (intptr_t)more == -ECANCELED);
    CHECK(unjank_listing_next(listing, -1, &event) == -ECANCELED);
    CHECK(unjank_listing_entry(listing, 0, &entry) == 0);
    CHECK(unjank_listing_close(listing) == 0);
}

static void a_forked_child_uses_the_library_anew(void)
{
    unjank_listing *listing = open_listing(UNJANK_SIZE, UNJANK_FOLLOW);
    unjank_event event = {.size = sizeof event};
    CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(unjank_listing_next(listing, -1, &event) == -ESTALE);
        CHECK(unjank_listing_cancel(listing) == -ESTALE);
        CHECK(unjank_listing_close(listing) == -ESTALE);
        unjank_listing *own = open_listing(UNJANK_SIZE, 0);
        CHECK(own != listing && finish(own) > 0);
        CHECK(unjank_listing_close(own) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    do
        CHECK(unjank_listing_next(listing, 60000, &event) == 1);
    while (event.type != UNJANK_DONE);
    CHECK(unjank_listing_close(listing) == 0);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

int main(int count, char **arguments)
{
    CHECK(count >= 2);
    CHECK(snprintf(directory, sizeof directory, "%s/of smoke", arguments[1]) < 2000);
    CHECK(mkdir(directory, 0755) == 0);
    for (int number = 0; number < 300; number++) {
        char name[64];
        snprintf(name, sizeof name, "file %d", number);
        make_file(name, (size_t)number % 17);
    }
    make_file("bad\xff\xfe\nname", 1);
    make_file(".hidden", 1);
    CHECK(strcmp(unjank_version(), "") != 0 && strcmp(unjank_error_text(), "") == 0);
    if (count > 2 && strcmp(arguments[2], "few") == 0) {
        /* More than are put in order at once, by each column. */
        many = 2200;
        orders = 10;
    }
    int before = open_descriptors();
    whole_columns_of_times_are_unpacked();
    columns_are_what_the_system_says();
    names_of_any_bytes_arrive_as_they_are();
    a_link_says_where_it_leads();
    a_model_is_sorted_and_filtered();
    many_rows_are_put_in_order_in_slices();
    changes_are_followed_by_a_main_loop();
    a_directory_that_is_not_there_or_disappears_is_told();
    wrong_use_is_an_error();
    threads_share_the_library_and_hand_handles_over();
    if (count == 2) {
        /* Tools that watch the memory need descriptors and processes of their own. */
        a_process_without_descriptors_is_told_and_goes_on();
        a_forked_child_uses_the_library_anew();
    }
    /* The threads of a listing that was closed end a moment later. */
    for (int time = 0; time < 1000 && open_descriptors() != before; time++)
        poll(NULL, 0, 10);
    CHECK(open_descriptors() == before);
    puts("good");
    return 0;
}
