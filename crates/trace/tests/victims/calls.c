// Makes calls of which the number is known.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void ask(int times) {
    for (int i = 0; i < times; i++) syscall(SYS_getppid);
}

static void pause_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, 0);
}

__attribute__((noinline)) static int save_inner(int fd) {
    int r = fsync(fd);
    __asm__ volatile("" ::: "memory");
    return r;
}

__attribute__((noinline)) int save(const char *path) {
    char bytes[8192];
    memset(bytes, 'x', sizeof bytes);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    // Few calls: what records each of them with its stack keeps up on a busy machine, too.
    for (int i = 0; i < 32; i++)
        if (write(fd, bytes, sizeof bytes) < 0) return 1;
    save_inner(fd);
    close(fd);
    // The number is another file's at once.
    return open("/dev/null", O_RDONLY) != fd;
}

static void *asks(void *times) {
    ask((int)(long)times);
    return 0;
}

static void *runs_true(void *unused) {
    execl("/bin/true", "true", "from a thread", (char *)0);
    return unused;
}

static void *waits(void *unused) {
    for (;;) pause();
    return unused;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int is_held;

__attribute__((noinline)) int take_lock(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return getppid();
}

static void *takes_lock(void *unused) {
    take_lock();
    return unused;
}

static void *holds_lock(void *ms) {
    pthread_mutex_lock(&lock);
    is_held = 1;
    pause_ms((long)ms);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void nothing(int unused) { (void)unused; }

// A call with a stack pointer that points to garbage at the very end of a mapping, or to nothing.
static void wild(void) {
    char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 4096; i++) page[i] = (char)(i * 37 + 11);
    struct timespec t = {0, 3000000};
    long places[] = {(long)page + 4096 - 24, 8, -4096, (long)page};
    for (int i = 0; i < 4; i++) {
        long result = SYS_nanosleep;
        __asm__ volatile("mov %%rsp, %%r12\n mov %[at], %%rsp\n syscall\n mov %%r12, %%rsp"
                         : "+a"(result)
                         : "D"(&t), "S"(0), [at] "r"(places[i])
                         : "rcx", "r11", "r12", "memory");
    }
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    int n = argc > 2 ? atoi(argv[2]) : 0;
    if (!strcmp(what, "save")) {
        int result = save(argv[2]);
        // The callers are found with the memory map of a process that is still there.
        pause_ms(500);
        return result;
    }
    if (!strcmp(what, "ask")) ask(n);
    if (!strcmp(what, "forks")) {
        for (int i = 0; i < n; i++)
            if (fork() == 0) {
                ask(10);
                _exit(i % 7);
            }
        while (wait(0) > 0) {}
    }
    if (!strcmp(what, "vfork")) {
        // The end of a child, which a tracer is told of, has the next vfork begin again.
        sigset_t ends;
        sigemptyset(&ends);
        sigaddset(&ends, SIGCHLD);
        sigprocmask(SIG_BLOCK, &ends, 0);
        for (int i = 0; i < n; i++)
            if (vfork() == 0) {
                execl("/bin/true", "true", (char *)0);
                _exit(1);
            }
        while (wait(0) > 0) {}
    }
    if (!strcmp(what, "threads")) {
        pthread_t threads[256];
        for (int i = 0; i < n; i++) pthread_create(&threads[i], 0, asks, (void *)100L);
        for (int i = 0; i < n; i++) pthread_join(threads[i], 0);
    }
    if (!strcmp(what, "locks")) {
        // One thread holds a lock for so many milliseconds, which the main thread and another one wait for.
        pthread_t holder, other;
        pthread_create(&holder, 0, holds_lock, (void *)(long)n);
        while (!is_held) usleep(1000);
        pthread_create(&other, 0, takes_lock, 0);
        take_lock();
        pthread_join(holder, 0);
        pthread_join(other, 0);
    }
    if (!strcmp(what, "exec-in-thread")) {
        pthread_t thread;
        pthread_create(&thread, 0, runs_true, 0);
        waits(0);
    }
    if (!strcmp(what, "wild")) {
        wild();
        for (int i = 0; i < 10; i++) syscall(SYS_openat, AT_FDCWD, (char *)8, 0, 0);
        for (int i = 0; i < 10; i++) syscall(SYS_renameat2, -5, (char *)-1, 1 << 30, "x", 0);
        syscall(SYS_fsync, -1);
        syscall(SYS_fsync, 0x7fffffff);
        syscall(999, 1, 2, 3);
    }
    if (!strcmp(what, "interrupted")) {
        // A timer interrupts ten sleeps, which nobody restarts, and one that the kernel does.
        struct itimerval often = {{0, 5000}, {0, 5000}}, never = {{0, 0}, {0, 0}};
        signal(SIGALRM, nothing);
        setitimer(ITIMER_REAL, &often, 0);
        for (int i = 0; i < n; i++) pause();
        setitimer(ITIMER_REAL, &never, 0);
        kill(getpid(), SIGSTOP);
        pause_ms(30);
    }
    if (!strcmp(what, "read")) {
        // Says that it is ready, and waits for a byte, again and again.
        char byte;
        do {
            if (write(1, ".", 1) != 1) return 1;
        } while (read(0, &byte, 1) == 1);
    }
    return 0;
}
