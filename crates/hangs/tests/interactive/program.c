/* An interactive program: it is connected to what looks like a Wayland compositor, waits for commands on that
   connection, and does what each command says before it waits again. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
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

int main(int count, char **arguments) {
    if (count < 3) return 2;
    int display = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
    if (connect(display, (struct sockaddr *)&address, sizeof address)) return 3;
    for (;;) {
        struct pollfd wanted = {.fd = display, .events = POLLIN};
        poll(&wanted, 1, -1);
        char command;
        if (read(display, &command, 1) != 1) return 0;
        switch (command) {
        case 's': sleep_on_purpose(0.4); break;
        case 'c': compute_things(0.4); break;
        case 'r': wait_for_reply(0.4); break;
        case 'l': lock_file(arguments[2]); break;
        case 'b': sleep_on_purpose(0.02); break;
        }
        if (write(display, "d", 1) != 1) return 0;
    }
}
