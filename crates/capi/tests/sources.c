/* Lists through a worker process and through the daemon, which are stopped and killed meanwhile.
 * Run as: sources DIRECTORY COUNT WORKER SOCKET DAEMON-PID */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <unjank.h>

#include "check.h"

/* Longer than anything here takes, in milliseconds; what must not be waited for takes less than a tenth. */
#define LONG 30000
/* So long is waited where nothing may come. */
#define NOTHING 300

static const char *directory, *worker, *daemon_socket;
static uint32_t entries;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static unjank_listing *begin(uint32_t flags, const char *program, const char *at)
{
    unjank_listing_options options = {.size = sizeof options,
                                      .fields = UNJANK_SIZE,
                                      .flags = UNJANK_FOLLOW | flags,
                                      .worker = program,
                                      .daemon = at};
    unjank_listing *listing;
    CHECK(unjank_listing_open(directory, &options, &listing) == 0);
    return listing;
}

/* Takes everything until all is read, or the listing fails; returns what next() did last. */
static int finish(unjank_listing *listing, uint32_t *names)
{
    unjank_event event = {.size = sizeof event};
    int more;
    *names = 0;
    while ((more = unjank_listing_next(listing, LONG, &event)) > 0) {
        if (event.type == UNJANK_NAMES)
            *names += event.count;
        CHECK(event.type != UNJANK_FAILED);
        if (event.type == UNJANK_DONE)
            return 1;
    }
    CHECK(more < 0);
    return more;
}

static void list_all(unjank_listing *listing)
{
    uint32_t names;
    CHECK(finish(listing, &names) == 1 && names == entries);
    unjank_entry entry = {.size = sizeof entry};
    CHECK(unjank_listing_entry(listing, entries - 1, &entry) == 0 && (entry.fields & UNJANK_SIZE));
}

/* The listing has ended: whoever waits is woken, and what arrived stays readable. */
static void check_ended(unjank_listing *listing, uint32_t least)
{
    unjank_event event = {.size = sizeof event};
    unjank_entry entry = {.size = sizeof entry};
    struct pollfd ready = {unjank_listing_fd(listing), POLLIN, 0};
    int more;
    CHECK(poll(&ready, 1, LONG) == 1);
    while ((more = unjank_listing_next(listing, LONG, &event)) > 0)
        CHECK(event.type != UNJANK_FAILED);
    CHECK(more == -ECONNRESET);
    CHECK(strlen(unjank_error_text()) > 0);
    double begun = now();
    CHECK(unjank_listing_next(listing, LONG, &event) < 0 && now() - begun < LONG / 10);
    CHECK(!least || (unjank_listing_entry(listing, least - 1, &entry) == 0 && strlen(entry.name) > 0));
    CHECK(unjank_listing_close(listing) == 0);
}

/* The process that this one started last and that has not ended; those that were left may be there for a moment. */
static pid_t child(void)
{
    char path[64], state = 0;
    int found = 0, next;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "r");
    CHECK(children != NULL);
    while (fscanf(children, "%d", &next) == 1) {
        snprintf(path, sizeof path, "/proc/%d/stat", next);
        FILE *status = fopen(path, "r");
        if (status && fscanf(status, "%*d (%*[^)]) %c", &state) == 1 && state != 'Z')
            found = next;
        if (status)
            fclose(status);
    }
    fclose(children);
    CHECK(found > 0);
    return found;
}

static void *cancel(void *listing)
{
    CHECK(unjank_listing_cancel((unjank_listing *)listing) == 0);
    return NULL;
}

/* A lister that was stopped: nobody hangs who gave a time, cancels or closes. */
static void check_stopped(uint32_t flags, pid_t lister)
{
    unjank_event event = {.size = sizeof event};
    pthread_t thread;
    unjank_listing *listing = begin(flags, worker, daemon_socket);
    if (lister == 0)
        CHECK(kill(child(), SIGSTOP) == 0);
    double begun = now();
    int more;
    /* What it sent before it was stopped may come. */
    while ((more = unjank_listing_next(listing, NOTHING, &event)) > 0)
        continue;
    CHECK(more == 0 && now() - begun < LONG / 10);
    CHECK(pthread_create(&thread, NULL, cancel, listing) == 0);
    while ((more = unjank_listing_next(listing, -1, &event)) > 0)
        continue;
    CHECK(more == -ECANCELED);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(unjank_listing_close(listing) == 0);

    listing = begin(flags, worker, daemon_socket);
    begun = now();
    CHECK(unjank_listing_close(listing) == 0 && now() - begun < LONG / 10);
}

/* A listing that is complete and not followed stays so whatever becomes of its lister, and wakes nobody any more. */
static void check_complete(void)
{
    unjank_listing_options options = {.size = sizeof options, .flags = UNJANK_WORKER, .worker = worker};
    unjank_event event = {.size = sizeof event};
    unjank_listing *listing;
    CHECK(unjank_listing_open(directory, &options, &listing) == 0);
    pid_t lister = child();
    do
        CHECK(unjank_listing_next(listing, LONG, &event) == 1);
    while (event.type != UNJANK_DONE);
    CHECK(kill(lister, SIGKILL) == 0 || errno == ESRCH);
    struct pollfd ready = {unjank_listing_fd(listing), POLLIN, 0};
    CHECK(poll(&ready, 1, LONG) == 1);
    for (int again = 0; again < 3; again++)
        CHECK(unjank_listing_next(listing, LONG, &event) == 0);
    CHECK(poll(&ready, 1, 0) == 0);
    CHECK(unjank_listing_close(listing) == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 6);
    directory = arguments[1];
    entries = (uint32_t)atoi(arguments[2]);
    worker = arguments[3];
    daemon_socket = arguments[4];
    pid_t daemon = atoi(arguments[5]);
    uint32_t names;

    /* A worker that ends is told, before, while and after it reads. */
    unjank_listing *listing = begin(UNJANK_WORKER, worker, NULL);
    list_all(listing);
    CHECK(kill(child(), SIGKILL) == 0);
    check_ended(listing, entries);
    listing = begin(UNJANK_WORKER, worker, NULL);
    CHECK(kill(child(), SIGSTOP) == 0);
    CHECK(kill(child(), SIGKILL) == 0);
    check_ended(listing, 0);
    listing = begin(UNJANK_WORKER, worker, NULL);
    unjank_event event = {.size = sizeof event};
    CHECK(unjank_listing_next(listing, LONG, &event) == 1 && event.type == UNJANK_NAMES);
    CHECK(kill(child(), SIGKILL) == 0);
    check_ended(listing, event.count);
    check_stopped(UNJANK_WORKER, 0);
    check_complete();
    /* What is no program is left for threads of this process. So is one that ends before it is asked; later it is an error. */
    list_all(listing = begin(UNJANK_WORKER, "/not/there", NULL));
    CHECK(unjank_listing_close(listing) == 0);
    listing = begin(UNJANK_WORKER, "/bin/true", NULL);
    int ended = finish(listing, &names);
    CHECK((ended == -ECONNRESET && names == 0) || (ended == 1 && names == entries));
    CHECK(unjank_listing_close(listing) == 0);

    /* The daemon: as long as it is there, it lists. */
    list_all(listing = begin(UNJANK_DAEMON, NULL, "/not/there"));
    CHECK(unjank_listing_close(listing) == 0);
    list_all(listing = begin(UNJANK_DAEMON, NULL, daemon_socket));
    CHECK(kill(daemon, SIGSTOP) == 0);
    check_stopped(UNJANK_DAEMON, daemon);
    /* What it did not begin is done by the next who can, when it ends. */
    unjank_listing *later = begin(UNJANK_DAEMON, NULL, daemon_socket);
    unjank_listing *by_worker = begin(UNJANK_DAEMON | UNJANK_WORKER, worker, daemon_socket);
    CHECK(unjank_listing_next(later, NOTHING, &event) == 0);
    CHECK(kill(daemon, SIGKILL) == 0);
    list_all(later);
    list_all(by_worker);
    CHECK(unjank_listing_close(later) == 0);
    CHECK(unjank_listing_close(by_worker) == 0);
    check_ended(listing, entries);
    list_all(listing = begin(UNJANK_DAEMON, NULL, daemon_socket));
    CHECK(unjank_listing_close(listing) == 0);
    puts("good");
    return 0;
}
