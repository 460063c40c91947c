/* An interactive program: it is connected to what looks like a Wayland compositor, waits for commands on that
   connection, and does what each command says before it waits again. It notes the moments before and after in a file.
   Its main loop waits with poll, or with what the third argument says. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

__attribute__((noinline)) void sleep_on_purpose(double seconds) {
    usleep(seconds * 1e6);
}

__attribute__((noinline)) void compute_things(double seconds) {
    volatile double sum = 0;
    for (double end = now() + seconds; now() < end;)
        for (int i = 0; i < 10000; i++) sum += i;
}

__attribute__((noinline)) void wait_for_reply(double seconds) {
    int ends[2];
    if (pipe(ends)) return;
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN};
    poll(&wanted, 1, seconds * 1000);
    close(ends[0]);
    close(ends[1]);
}

__attribute__((noinline)) void lock_file(const char *path) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    flock(file, LOCK_EX);
    close(file);
}

__attribute__((noinline)) void wait_for_programs(double seconds) {
    char line[64];
    snprintf(line, sizeof line, "(sleep %f; echo) | cat", seconds);
    FILE *output = popen(line, "r");
    if (!output) return;
    if (read(fileno(output), line, sizeof line) < 0) perror("read");
    pclose(output);
}

__attribute__((noinline)) void store_file(const char *path, double seconds) {
    int file = open(path, O_RDWR | O_CREAT, 0600);
    static char bytes[1 << 16];
    for (double end = now() + seconds; now() < end;)
        if (pwrite(file, bytes, sizeof bytes, 0) < 0 || fsync(file)) break;
    close(file);
}

static void wait_for_events(int display, const char *how) {
    static int epoll = -1;
    if (!strcmp(how, "select")) {
        fd_set wanted;
        FD_ZERO(&wanted);
        FD_SET(display, &wanted);
        select(display + 1, &wanted, NULL, NULL, NULL);
    } else if (!strcmp(how, "epoll")) {
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll < 0) {
            epoll = epoll_create1(EPOLL_CLOEXEC);
            epoll_ctl(epoll, EPOLL_CTL_ADD, display, &event);
        }
        epoll_wait(epoll, &event, 1, -1);
    } else {
        struct pollfd wanted = {.fd = display, .events = POLLIN};
        poll(&wanted, 1, -1);
    }
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int display = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
    if (connect(display, (struct sockaddr *)&address, sizeof address)) return 3;
    char path[4096];
    snprintf(path, sizeof path, "%s.log", arguments[2]);
    char stored[4096];
    snprintf(stored, sizeof stored, "%s.stored", arguments[2]);
    FILE *log = fopen(path, "w");
    for (;;) {
        wait_for_events(display, count > 3 ? arguments[3] : "poll");
        double began = now();
        char command;
        if (read(display, &command, 1) != 1) return 0;
        switch (command) {
        case 's': sleep_on_purpose(0.4); break;
        case 'c': compute_things(0.4); break;
        case 'r': wait_for_reply(0.4); break;
        case 'l': lock_file(arguments[2]); break;
        case 'f': store_file(stored, 0.3); break;
        case 'w': wait_for_programs(0.5); break;
        case 'x': execv("/proc/self/exe", arguments); break;
        case 'b': sleep_on_purpose(0.02); break;
        }
        fprintf(log, "%c %.9f %.9f\n", command, began, now());
        fflush(log);
        if (write(display, "d", 1) != 1) return 0;
    }
}
