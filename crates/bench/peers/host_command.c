/* The least that a host command through a bus can take: a client and a service that send the messages of
   org.freedesktop.Flatpak.Development and do nothing else, no policy, no log, no identity, no terminals.

   host_command serve              owns org.freedesktop.Flatpak on the session bus
   host_command run COMMAND...     runs a command through it, and ends with its code

   cc -O2 -static -o host_command host_command.c */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "org.freedesktop.Flatpak"
#define OBJECT "/org/freedesktop/Flatpak/Development"
#define INTERFACE "org.freedesktop.Flatpak.Development"
#define BUS "org.freedesktop.DBus"
#define BUS_OBJECT "/org/freedesktop/DBus"

static void fail(const char *what) { perror(what); exit(125); }

/* A message being written. */
static unsigned char out[1 << 16];
static size_t at;
static void align(size_t to) { while (at % to) out[at++] = 0; }
static void put(const void *bytes, size_t count) { memcpy(out + at, bytes, count); at += count; }
static void number(uint32_t value) { align(4); put(&value, 4); }
static void text(const char *s) { number(strlen(s)); put(s, strlen(s) + 1); }
static void signature(const char *s) { out[at++] = strlen(s); put(s, strlen(s) + 1); }
static void field(unsigned char code, const char *type, const char *value) {
    align(8); out[at++] = code; signature(type);
    if (*type == 'g') signature(value); else text(value);
}
static void field_number(unsigned char code, uint32_t value) { align(8); out[at++] = code; signature("u"); number(value); }

static uint32_t serial;
static size_t start, fields, body;
static void begin(int type) {
    start = at; out[at++] = 'l'; out[at++] = type; out[at++] = type == 1 ? 0 : 1; out[at++] = 1;
    number(0); number(++serial); number(0); fields = at;
}
static void end_header(void) { uint32_t n = at - fields; memcpy(out + fields - 4, &n, 4); align(8); body = at; }
static void end_body(void) { uint32_t n = at - body; memcpy(out + start + 4, &n, 4); }
static void call_of_bus(const char *member, const char *types, const char *argument) {
    begin(1); field(1, "o", BUS_OBJECT); field(2, "s", BUS); field(3, "s", member); field(6, "s", BUS);
    if (*types) field(8, "g", types);
    end_header();
    if (*types) text(argument);
    if (!strcmp(types, "su")) number(4);
    end_body();
}

static int bus;
static void send_out(const int *descriptors, int count) {
    union { struct cmsghdr align; char space[CMSG_SPACE(3 * sizeof(int))]; } control;
    struct iovec piece = { out, at };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
    if (count) {
        message.msg_control = &control; message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET; header->cmsg_type = SCM_RIGHTS; header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    if (sendmsg(bus, &message, MSG_NOSIGNAL) != (ssize_t)at) fail("send");
    at = 0;
}

/* What has come, and where the next message begins. */
static unsigned char in[1 << 16];
static size_t held, next;
static int passed[16], passed_count;
static void fill(void) {
    memmove(in, in + next, held - next); held -= next; next = 0;
    char space[CMSG_SPACE(16 * sizeof(int))];
    struct iovec piece = { in + held, sizeof in - held };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space };
    ssize_t count = recvmsg(bus, &message, MSG_CMSG_CLOEXEC);
    if (count <= 0) fail("receive");
    held += count;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) {
        passed_count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(passed, CMSG_DATA(header), passed_count * sizeof(int));
    }
}
static uint32_t u32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
struct message { int type; uint32_t serial; const char *sender, *member; unsigned char *body; };
static struct message take(void) {
    for (;;) {
        if (held - next >= 16) {
            unsigned char *m = in + next;
            size_t header = (16 + u32(m + 12) + 7) / 8 * 8, whole = header + u32(m + 4);
            if (held - next >= whole) {
                struct message found = { m[1], u32(m + 8), "", "", m + header };
                size_t p = 16, end = 16 + u32(m + 12);
                while (p < end) {
                    p = (p + 7) / 8 * 8;
                    int code = m[p]; char type = m[p + 2]; p += 4;
                    if (type == 'g') { p += m[p] + 2; continue; }
                    p = (p + 3) / 4 * 4;
                    if (type == 'u') { p += 4; continue; }
                    if (code == 7) found.sender = (char *)m + p + 4;
                    if (code == 3) found.member = (char *)m + p + 4;
                    p += 4 + u32(m + p) + 1;
                }
                next += whole;
                return found;
            }
        }
        fill();
    }
}

static void greet(const char *call, const char *types, const char *argument) {
    const char *address = getenv("DBUS_SESSION_BUS_ADDRESS");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    socklen_t length;
    const char *path = address ? strstr(address, "path=") : NULL, *name = address ? strstr(address, "abstract=") : NULL;
    if (path) { path += 5; memcpy(to.sun_path, path, strcspn(path, ",")); length = sizeof to; }
    else if (name) { name += 9; size_t n = strcspn(name, ","); memcpy(to.sun_path + 1, name, n); length = offsetof(struct sockaddr_un, sun_path) + 1 + n; }
    else { fprintf(stderr, "no address\n"); exit(125); }
    bus = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(bus, (struct sockaddr *)&to, length)) fail("connect");
    /* The greeting and the first calls at once; messages are aligned from their own start. */
    static unsigned char first[4096];
    static const char lines[] = "\0AUTH EXTERNAL\r\nDATA\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n";
    size_t count = sizeof lines - 1;
    memcpy(first, lines, count);
    call_of_bus("Hello", "", ""); memcpy(first + count, out, at); count += at; at = 0;
    call_of_bus(call, types, argument); memcpy(first + count, out, at); count += at; at = 0;
    if (send(bus, first, count, MSG_NOSIGNAL) != (ssize_t)count) fail("send");
    unsigned char *end;
    while (fill(), !(end = memmem(in, held, "AGREE_UNIX_FD\r\n", 15))) ;
    next = end + 15 - in;
}

static int client(char **words) {
    greet("AddMatch", "s", "type='signal',sender='" BUS "',interface='" BUS "',member='NameOwnerChanged',arg0='" NAME "'");
    begin(1); field(1, "o", OBJECT); field(2, "s", INTERFACE); field(3, "s", "HostCommand"); field(6, "s", NAME);
    field(8, "g", "ayaaya{uh}a{ss}u"); field_number(9, 3); end_header();
    char here[4096];
    if (!getcwd(here, sizeof here)) fail("getcwd");
    number(strlen(here) + 1); put(here, strlen(here) + 1);
    number(0); size_t array = at;
    for (; *words; words++) { number(strlen(*words) + 1); put(*words, strlen(*words) + 1); }
    uint32_t n = at - array; memcpy(out + array - 4, &n, 4);
    number(0); size_t length_at = at - 4; align(8); array = at;
    for (uint32_t i = 0; i < 3; i++) { align(8); number(i); number(i); }
    n = at - array; memcpy(out + length_at, &n, 4);
    number(0); align(8);
    number(0); end_body();
    send_out((int[]){ 0, 1, 2 }, 3);
    for (;;) {
        struct message m = take();
        if (m.type == 3) { fprintf(stderr, "refused\n"); return 125; }
        if (m.type == 4 && !strcmp(m.member, "HostCommandExited")) { int status = u32(m.body + 4); return WEXITSTATUS(status); }
    }
}

static void serve(void) {
    greet("RequestName", "su", NAME);
    for (;;) {
        struct message m = take();
        if (m.type != 1 || strcmp(m.member, "HostCommand")) continue;
        char sender[256];
        snprintf(sender, sizeof sender, "%s", m.sender);
        char *words[64]; int count = 0;
        unsigned char *p = m.body, *base = m.body;
        char *directory = (char *)p + 4; p += 4 + u32(p);
        #define ALIGN(to) p = base + ((p - base) + to - 1) / to * to
        ALIGN(4);
        unsigned char *end = p + 4 + u32(p); p += 4;
        while (p < end && count < 63) { ALIGN(4); words[count++] = (char *)p + 4; p += 4 + u32(p); }
        words[count] = NULL;
        ALIGN(4);
        uint32_t bytes = u32(p); p += 4; ALIGN(8); end = p + bytes;
        uint32_t targets[16], handles[16]; int pairs = 0;
        for (; p < end && pairs < 16; pairs++) { ALIGN(8); targets[pairs] = u32(p); handles[pairs] = u32(p + 4); p += 8; }
        pid_t pid = vfork();
        if (!pid) {
            setsid();
            if (chdir(directory)) _exit(125);
            for (int i = 0; i < pairs; i++) dup2(passed[handles[i]], targets[i]);
            execvp(words[0], words);
            _exit(127);
        }
        for (int i = 0; i < passed_count; i++) close(passed[i]);
        passed_count = 0;
        begin(2); field(6, "s", sender); field_number(5, m.serial); field(8, "g", "u"); end_header(); number(pid); end_body();
        send_out(NULL, 0);
        int status;
        waitpid(pid, &status, 0);
        begin(4); field(1, "o", OBJECT); field(2, "s", INTERFACE); field(3, "s", "HostCommandExited"); field(6, "s", sender);
        field(8, "g", "uu"); end_header(); number(pid); number(status); end_body();
        send_out(NULL, 0);
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "run")) return client(argv + 2);
    if (argc == 2 && !strcmp(argv[1], "serve")) serve();
    fprintf(stderr, "usage: host_command serve | run COMMAND...\n");
    return 2;
}
