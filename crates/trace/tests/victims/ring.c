/* A program whose main thread waits for operations of io_uring, in the way that its first argument says, on the file of its second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES (24 << 20)

static int ring;
static unsigned *tail, *mask, *array, *head, *ctail, *cmask;
static struct io_uring_sqe *entries;
static struct io_uring_cqe *completions;
static char *buffer;

static void fail(const char *what)
{
    perror(what);
    exit(errno == ENOSYS || errno == EPERM ? 77 : 3);
}

static void set_up(unsigned flags)
{
    struct io_uring_params how = {.flags = flags, .sq_thread_idle = 2000};
    ring = syscall(SYS_io_uring_setup, 8, &how);
    if (ring < 0)
        fail("io_uring_setup");
    size_t length = how.sq_off.array + how.sq_entries * sizeof(unsigned);
    size_t clength = how.cq_off.cqes + how.cq_entries * sizeof *completions;
    if (clength > length)
        length = clength;
    char *rings = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    entries = mmap(NULL, how.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                   IORING_OFF_SQES);
    if (rings == MAP_FAILED || entries == MAP_FAILED)
        fail("mmap");
    tail = (unsigned *)(rings + how.sq_off.tail);
    mask = (unsigned *)(rings + how.sq_off.ring_mask);
    array = (unsigned *)(rings + how.sq_off.array);
    head = (unsigned *)(rings + how.cq_off.head);
    ctail = (unsigned *)(rings + how.cq_off.tail);
    cmask = (unsigned *)(rings + how.cq_off.ring_mask);
    completions = (struct io_uring_cqe *)(rings + how.cq_off.cqes);
}

static struct io_uring_sqe *entry(int opcode, int descriptor)
{
    unsigned at = *tail & *mask;
    struct io_uring_sqe *entry = &entries[at];
    memset(entry, 0, sizeof *entry);
    entry->opcode = opcode;
    entry->fd = descriptor;
    array[at] = at;
    return entry;
}

static void submit(void)
{
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

/* Macros: the function to blame is the one that uses them. */
#define enter(count, wanted) \
    syscall(SYS_io_uring_enter, ring, count, wanted, (wanted) ? IORING_ENTER_GETEVENTS | IORING_ENTER_SQ_WAKEUP : 0, NULL, 0)

static int is_empty(void)
{
    return *head == __atomic_load_n(ctail, __ATOMIC_ACQUIRE);
}

static int taken(void)
{
    int value = completions[*head & *cmask].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return value;
}

#define result() ({ \
    while (is_empty()) \
        if (enter(0, 1) < 0 && errno != EINTR) \
            fail("io_uring_enter"); \
    taken(); \
})

static int opened(const char *name, int flags)
{
    int file = open(name, flags | O_CLOEXEC, 0600);
    if (file < 0)
        fail(name);
    return file;
}

/* None of the file is in memory afterwards. */
static int cold(const char *name)
{
    int file = opened(name, O_RDONLY);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    return file;
}

static void add_read(int file, unsigned flags)
{
    struct io_uring_sqe *read = entry(IORING_OP_READ, file);
    read->addr = (uintptr_t)buffer;
    read->len = BYTES;
    read->flags = flags;
    submit();
}

static void check(int value, int wanted)
{
    if (value == wanted)
        return;
    fprintf(stderr, "result %d\n", value);
    exit(3);
}

__attribute__((noinline)) void read_by_ring(int file, unsigned flags)
{
    add_read(file, flags);
    enter(1, 1);
    check(result(), BYTES);
}

/* A page that is in memory, by a worker of the ring: each wait is short. */
__attribute__((noinline)) void read_page(int file)
{
    struct io_uring_sqe *read = entry(IORING_OP_READ, file);
    read->addr = (uintptr_t)buffer;
    read->len = 4096;
    read->flags = IOSQE_ASYNC;
    submit();
    enter(1, 1);
    check(result(), 4096);
}

__attribute__((noinline)) void read_by_poller(int file)
{
    add_read(0, IOSQE_FIXED_FILE);
    enter(0, 1);
    check(result(), BYTES);
    (void)file;
}

__attribute__((noinline)) void sync_by_ring(int file)
{
    entry(IORING_OP_FSYNC, file);
    submit();
    enter(1, 1);
    check(result(), 0);
}

__attribute__((noinline)) void wait_for_counter(int counter, int file)
{
    uint64_t count;
    add_read(file, IOSQE_ASYNC);
    enter(1, 0);
    if (read(counter, &count, sizeof count) != sizeof count)
        fail("read");
    check(result(), BYTES);
}

__attribute__((noinline)) void poll_ring(int file)
{
    struct pollfd polled = {.fd = ring, .events = POLLIN};
    add_read(file, IOSQE_ASYNC);
    enter(1, 0);
    poll(&polled, 1, -1);
    check(result(), BYTES);
}

/* An event loop: something from outside could end the wait, too. */
__attribute__((noinline)) void wait_for_events(int file)
{
    int ends[2];
    if (pipe(ends) < 0)
        fail("pipe");
    struct io_uring_sqe *poll = entry(IORING_OP_POLL_ADD, ends[0]);
    poll->poll32_events = POLLIN;
    submit();
    enter(1, 0);
    add_read(file, IOSQE_ASYNC);
    enter(1, 1);
    check(result(), BYTES);
}

/* After 150 ms something is written, and the process that wrote it has ended. */
static pid_t writer(int to)
{
    pid_t child = fork();
    if (child != 0)
        return child;
    uint64_t one = 1;
    usleep(400000);
    _exit(write(to, &one, sizeof one) == sizeof one ? 0 : 1);
}

/* What a system call would do, by one operation: nothing else could end the wait. */
__attribute__((noinline)) void wait_like_a_call(int opcode, int descriptor)
{
    struct io_uring_sqe *wait = entry(opcode, descriptor);
    wait->addr = (uintptr_t)buffer;
    wait->len = 8;
    submit();
    enter(1, 1);
    check(result(), 8);
}

/* IORING_OP_WAITID, which older headers do not have; 3 where the kernel does not. */
__attribute__((noinline)) void wait_for_child(pid_t child)
{
    struct io_uring_sqe *wait = entry(50, child);
    wait->len = P_PID;
    wait->file_index = WEXITED;
    submit();
    enter(1, 1);
    int got = result();
    if (got == -EINVAL)
        exit(3);
    check(got, 0);
}

__attribute__((noinline)) void sleep_by_ring(void)
{
    struct __kernel_timespec span = {.tv_nsec = 150000000};
    struct io_uring_sqe *wait = entry(IORING_OP_TIMEOUT, -1);
    wait->addr = (uintptr_t)&span;
    wait->len = 1;
    submit();
    enter(1, 1);
    check(result(), -ETIME);
}

__attribute__((noinline)) void open_by_ring(const char *name, int wanted)
{
    struct io_uring_sqe *open = entry(IORING_OP_OPENAT, AT_FDCWD);
    open->addr = (uintptr_t)name;
    open->open_flags = O_RDONLY | O_CLOEXEC;
    open->flags = IOSQE_ASYNC;
    submit();
    enter(1, 1);
    int file = result();
    if (wanted < 0 ? file != wanted : file < 0)
        check(file, wanted);
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    const char *name = count > 2 ? words[2] : "";
    buffer = malloc(BYTES);
    memset(buffer, 7, BYTES);
    if (!strcmp(how, "read") || !strcmp(how, "worker")) {
        set_up(0);
        for (int i = 0; i < 3; i++)
            read_by_ring(cold(name), *how == 'w' ? IOSQE_ASYNC : 0);
    } else if (!strcmp(how, "pages")) {
        int file = opened(name, O_RDONLY);
        set_up(0);
        for (int i = 0; i < 50000; i++)
            read_page(file);
    } else if (!strcmp(how, "registered")) {
        int file = cold(name);
        set_up(0);
        if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &file, 1) < 0)
            fail("io_uring_register");
        close(file);
        for (int i = 0; i < 3; i++) {
            read_by_ring(0, IOSQE_FIXED_FILE);
            close(cold(name));
        }
    } else if (!strcmp(how, "poller")) {
        int file = cold(name);
        set_up(IORING_SETUP_SQPOLL);
        if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &file, 1) < 0)
            fail("io_uring_register");
        for (int i = 0; i < 3; i++) {
            read_by_poller(file);
            close(cold(name));
        }
    } else if (!strcmp(how, "sync")) {
        int file = opened(name, O_RDWR | O_CREAT);
        set_up(0);
        for (int i = 0; i < 3; i++) {
            if (pwrite(file, buffer, BYTES, 0) != BYTES)
                fail("pwrite");
            sync_by_ring(file);
        }
    } else if (!strcmp(how, "counter")) {
        int counter = eventfd(0, EFD_CLOEXEC);
        set_up(0);
        if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_EVENTFD, &counter, 1) < 0)
            fail("io_uring_register");
        for (int i = 0; i < 3; i++)
            wait_for_counter(counter, cold(name));
    } else if (!strcmp(how, "poll")) {
        set_up(0);
        for (int i = 0; i < 3; i++)
            poll_ring(cold(name));
    } else if (!strcmp(how, "loop")) {
        set_up(0);
        wait_for_events(cold(name));
    } else if (!strcmp(how, "pipe") || !strcmp(how, "socket") || !strcmp(how, "waker")) {
        int ends[2];
        if (*how == 'p' ? pipe(ends) : *how == 's' ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : 0)
            fail(how);
        if (*how == 'w')
            ends[0] = ends[1] = eventfd(0, 0);
        set_up(0);
        writer(ends[1]);
        wait_like_a_call(*how == 's' ? IORING_OP_RECV : IORING_OP_READ, ends[0]);
    } else if (!strcmp(how, "child")) {
        set_up(0);
        pid_t child = fork();
        if (child == 0) {
            usleep(400000);
            _exit(0);
        }
        wait_for_child(child);
    } else if (!strcmp(how, "sleep")) {
        set_up(0);
        sleep_by_ring();
    } else if (!strcmp(how, "open")) {
        set_up(0);
        for (int i = 0; i < 3; i++) {
            open_by_ring(name, 0);
            open_by_ring("no-such-file", -ENOENT);
        }
    } else {
        return 2;
    }
    return 0;
}
