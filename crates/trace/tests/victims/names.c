// Works on files, sockets and pipes, and ends at once: who wants to know what they were has to look in time.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char byte;

// Closes what was worked on; the next file gets its number.
static void gone(int fd) {
    close(fd);
    open("/dev/null", O_RDWR);
}

static int unix_socket(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strncpy(name.sun_path, path, sizeof name.sun_path - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int failed = connect(fd, (struct sockaddr *)&name, sizeof name);
    memset(&name, 'x', sizeof name);
    return failed ? -1 : fd;
}

static int internet_socket(int type, const char *port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, type, 0);
    int failed = connect(fd, (struct sockaddr *)&name, sizeof name);
    memset(&name, 'x', sizeof name);
    return failed ? -1 : fd;
}

// A field of a header of D-Bus: its code, its type and its text.
static size_t field(char *at, size_t from, int code, char type, const char *text) {
    size_t to = (from + 7) / 8 * 8;
    memcpy(at + to, (char[]){(char)code, 1, type, 0}, 4);
    unsigned length = (unsigned)strlen(text);
    memcpy(at + to + 4, &length, 4);
    memcpy(at + to + 8, text, length + 1);
    return to + 8 + length + 1;
}

static size_t request(char *message, const char *member) {
    memset(message, 0, 512);
    memcpy(message, "l\1\0\1\0\0\0\0\7\0\0\0", 12);
    size_t end = field(message, 16, 1, 'o', "/org/example/Object");
    end = field(message, end, 6, 's', "org.example.Service");
    end = field(message, end, 2, 's', "org.example.Interface");
    end = field(message, end, 3, 's', member);
    unsigned length = (unsigned)(end - 16);
    memcpy(message + 12, &length, 4);
    return (end + 7) / 8 * 8;
}

static void *works(void *directory) {
    prctl(PR_SET_NAME, "worker of names");
    int fd = openat((int)(long)directory, "by-worker", O_CREAT | O_RDWR, 0600);
    fsync(fd);
    gone(fd);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    const char *directory = argv[1], *listener = argv[2];
    prctl(PR_SET_NAME, "renamed main");
    if (chdir(directory)) return 3;

    int fd = unix_socket(listener);
    if (fd < 0 || write(fd, "x", 1) != 1 || read(fd, &byte, 1) != 1) return 4;
    char message[512];
    struct iovec part = {message, request(message, "Slow")};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (sendmsg(fd, &header, 0) < 0) return 5;
    struct pollfd one = {fd, POLLIN, 0};
    poll(&one, 1, -1);
    one.fd = 0;
    if (recv(fd, &byte, 1, 0) != 1) return 6;
    if (send(fd, message, request(message, "Slower"), 0) < 0) return 7;
    memset(message, 0, sizeof message);
    int event = eventfd(0, 0);
    struct pollfd two[2] = {{event, POLLIN, 0}, {fd, POLLIN, 0}};
    poll(two, 2, -1);
    memset(two, 0, sizeof two);
    gone(fd);
    unix_socket("/nothing/listens/here");

    fd = internet_socket(SOCK_STREAM, argv[3]);
    if (fd < 0 || read(fd, &byte, 1) != 1) return 8;
    gone(fd);
    fd = internet_socket(SOCK_DGRAM, argv[4]);
    if (fd < 0 || send(fd, "x", 1, 0) != 1) return 9;
    gone(fd);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 10;
    if (write(pair[0], "x", 1) != 1) return 11;
    gone(pair[0]);
    gone(pair[1]);
    fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (recv(fd, &byte, 1, MSG_DONTWAIT) >= 0) return 12;
    gone(fd);

    int pipes[2];
    if (pipe(pipes) || write(pipes[1], "x", 1) != 1 || read(pipes[0], &byte, 1) != 1) return 13;
    gone(pipes[0]);
    gone(pipes[1]);
    unsigned long long count = 1;
    if (write(event, &count, 8) != 8) return 14;
    gone(event);
    fd = memfd_create("of names", 0);
    if (write(fd, "x", 1) != 1) return 15;
    gone(fd);

    fd = open("a file", O_CREAT | O_RDWR, 0600);
    if (symlink("a file", "a link") || write(fd, "x", 1) != 1 || fdatasync(fd)) return 16;
    gone(fd);
    fd = open("a link", O_RDONLY);
    if (read(fd, &byte, 1) != 1) return 17;
    gone(fd);
    open("missing", O_RDONLY);
    access("a link", R_OK);
    if (rename("a file", "another")) return 18;
    fd = open("another", O_RDONLY);
    if (unlink("another") || read(fd, &byte, 1) != 1) return 19;
    gone(fd);
    int at = open("/", O_RDONLY | O_DIRECTORY);
    faccessat(at, "usr", R_OK, 0);
    gone(at);

    pthread_t worker;
    at = open(".", O_RDONLY | O_DIRECTORY);
    pthread_create(&worker, 0, works, (void *)(long)at);
    pthread_join(worker, 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NAME, "child of names");
        unlink("by-worker");
        _exit(3);
    }
    waitpid(child, 0, 0);
    return 0;
}
