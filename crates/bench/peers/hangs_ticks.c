/* A frame counter for programs as they are, preloaded: a timer of GLib's main loop each 16 ms, which Qt, LibreOffice and the
   browsers have, too. It writes each time between two of its turns that is longer than 66 ms, with the moments, into a file
   named after the process, once the process is connected to a display:

     begin AT       the first turn after that
     gap FROM TO    nothing was drawn or answered meanwhile
     at AT          the last turn so far, twice a second */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL_MS = 16, HIGHEST = -100, DESCRIPTORS = 256, LOOKS = 1200 };
static const uint64_t SHORTEST_NS = 66000000, SAID_NS = 500000000;

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int has_display(void) {
    for (int number = 3; number < DESCRIPTORS; number++) {
        struct sockaddr_un peer;
        socklen_t length = sizeof peer;
        memset(&peer, 0, sizeof peer);
        if (getpeername(number, (struct sockaddr *)&peer, &length) || peer.sun_family != AF_UNIX) continue;
        if (memmem(&peer, sizeof peer, ".X11-unix", 9)) return 1;
    }
    return 0;
}

static int tick(void *nothing) {
    static int file = -1;
    static uint64_t last_ns, said_ns;
    (void)nothing;
    if (file < 0 && !has_display()) return 1;
    uint64_t at_ns = now_ns();
    if (file < 0) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d", getenv("UNJANK_TICKS"), getpid());
        file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        dprintf(file, "begin %llu\n", (unsigned long long)at_ns);
    } else if (at_ns - last_ns > SHORTEST_NS) {
        dprintf(file, "gap %llu %llu\n", (unsigned long long)last_ns, (unsigned long long)at_ns);
    }
    if (at_ns - said_ns > SAID_NS) {
        said_ns = at_ns;
        dprintf(file, "at %llu\n", (unsigned long long)at_ns);
    }
    last_ns = at_ns;
    return 1;
}

/* The library with the main loop may be loaded late. */
static void *look(void *nothing) {
    (void)nothing;
    for (int count = 0; count < LOOKS; count++) {
        unsigned (*add)(int, unsigned, int (*)(void *), void *, void (*)(void *)) =
            dlsym(RTLD_DEFAULT, "g_timeout_add_full");
        if (add) {
            add(HIGHEST, INTERVAL_MS, tick, NULL, NULL);
            break;
        }
        usleep(50000);
    }
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    if (getenv("UNJANK_TICKS") && !pthread_create(&thread, NULL, look, NULL)) pthread_detach(thread);
}
