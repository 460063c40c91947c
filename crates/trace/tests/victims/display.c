/* A program with a window whose event loop is its own: it waits for the display, or for an answer of it, in the way that its
   first argument says. The second one is a directory with a server's socket in it, which this program makes itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int other[2];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

/* A server in a process of its own: it sends a byte each 150 ms, and reads nothing. */
static int server(const char *directory, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char path[128];
    snprintf(path, sizeof path, "%s/.X11-unix", directory);
    mkdir(path, 0700);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/.X11-unix/%s", directory, name);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1))
        fail("bind");
    if (fork() == 0) {
        int client = accept(listener, NULL, NULL);
        signal(SIGPIPE, SIG_DFL);
        for (;;) {
            usleep(150000);
            if (write(client, "x", 1) != 1)
                _exit(0);
        }
    }
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connect(connection, (struct sockaddr *)&address, sizeof address))
        fail("connect");
    close(listener);
    return connection;
}

static void take(int connection)
{
    char event;
    if (read(connection, &event, 1) != 1)
        fail("read");
}

__attribute__((noinline)) void wait_by_poll(int display, short events)
{
    struct pollfd polled[2] = {{.fd = other[0], .events = POLLIN}, {.fd = display, .events = events}};
    poll(polled, 2, 400);
}

__attribute__((noinline)) void wait_by_select(int display, int timeout_ms)
{
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(other[0], &reads);
    FD_SET(display, &reads);
    struct timeval timeout = {.tv_usec = timeout_ms * 1000};
    select((display > other[0] ? display : other[0]) + 1, &reads, NULL, NULL, &timeout);
}

__attribute__((noinline)) void wait_by_read(int display)
{
    char event;
    if (read(display, &event, 1) != 1)
        fail("read");
}

__attribute__((noinline)) void wait_by_recvmsg(int display)
{
    char event;
    struct iovec part = {&event, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (recvmsg(display, &message, 0) != 1)
        fail("recvmsg");
}

__attribute__((noinline)) void wait_for_room(int display)
{
    struct pollfd polled = {.fd = display, .events = POLLOUT};
    poll(&polled, 1, 120);
}

/* As the library of X does. */
__attribute__((noinline)) void _XReply(int display)
{
    wait_by_poll(display, POLLIN);
}

/* It is another server that is asked. */
__attribute__((noinline)) void wait_for_service(int service)
{
    wait_by_poll(service, POLLIN);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static int bus, asked, has_answer;

/* As that of Qt which sends to the bus and receives from it, while whoever asks waits for a lock. */
static void *manage(void *unused)
{
    (void)unused;
    static const char message[] = "l\1\0\1\0\0\0\0\1\0\0\0\65\0\0\0"
                                  "\1\1o\0\6\0\0\0/notes\0\0"
                                  "\6\1s\0\11\0\0\0org.notes\0\0\0\0\0\0\0"
                                  "\3\1s\0\4\0\0\0Save\0";
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!asked)
            pthread_cond_wait(&answered, &lock);
        asked = 0;
        pthread_mutex_unlock(&lock);
        if (sendto(bus, message, sizeof message - 1, MSG_NOSIGNAL, NULL, 0) < 0)
            fail("sendto");
        take(bus);
        pthread_mutex_lock(&lock);
        has_answer = 1;
        pthread_cond_broadcast(&answered);
        pthread_mutex_unlock(&lock);
    }
}

__attribute__((noinline)) void QDBusPendingCall_wait(void)
{
    pthread_mutex_lock(&lock);
    asked = 1;
    has_answer = 0;
    pthread_cond_broadcast(&answered);
    while (!has_answer)
        pthread_cond_wait(&answered, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int count, char **words)
{
    const char *how = count > 2 ? words[1] : "";
    int is_service = !strcmp(how, "service");
    if (pipe(other))
        fail("pipe");
    int is_bus = !strcmp(how, "bus");
    int display = server(words[2], is_service ? "service" : is_bus ? "bus" : "X7");
    pthread_t manager;
    bus = display;
    if (is_bus && pthread_create(&manager, NULL, manage, NULL))
        fail("pthread_create");
    for (int i = 0; i < 3; i++) {
        if (!strcmp(how, "poll")) {
            wait_by_poll(display, POLLIN);
            take(display);
        } else if (!strcmp(how, "select")) {
            wait_by_select(display, 400);
            take(display);
        } else if (!strcmp(how, "tick")) {
            /* Nothing comes: the answer of the kernel is an empty set. */
            wait_by_select(display, 100);
        } else if (!strcmp(how, "read")) {
            wait_by_read(display);
        } else if (!strcmp(how, "recvmsg")) {
            wait_by_recvmsg(display);
        } else if (!strcmp(how, "answer")) {
            _XReply(display);
            take(display);
        } else if (!strcmp(how, "full")) {
            /* The display server does not read: there is no room to write. */
            static char page[1 << 16];
            while (send(display, page, sizeof page, MSG_DONTWAIT) > 0)
                ;
            wait_for_room(display);
        } else if (is_bus) {
            QDBusPendingCall_wait();
        } else if (is_service) {
            wait_for_service(display);
            take(display);
        } else {
            return 2;
        }
    }
    return 0;
}
