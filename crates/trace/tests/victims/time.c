/* A program whose main thread spends its time in one way, told by its first argument. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sum;

static double now(clockid_t clock)
{
    struct timespec at;
    clock_gettime(clock, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* So much time of the thread's own, not of the wall: a busy machine only makes it longer. */
__attribute__((noinline)) void spin(double seconds)
{
    double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        for (int i = 0; i < 20000; i++)
            sum += i * sum;
}

/* How long the thread has neither had a processor nor waited for one: a busy machine adds nothing to it. */
static double blocked(void)
{
    FILE *counts = fopen("/proc/thread-self/schedstat", "re");
    unsigned long long ran, ready;
    if (!counts || fscanf(counts, "%llu %llu", &ran, &ready) != 2)
        exit(3);
    fclose(counts);
    return now(CLOCK_MONOTONIC) - (ran + ready) / 1e9;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;

static void *holder(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    pthread_barrier_wait(&held);
    usleep(300000);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Whether the lender has the lock. */
static atomic_int is_lent;

/* Holds the lock for 1.5 ms, as often as it is asked to. */
static void *lender(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        is_lent = 1;
        usleep(1500);
        pthread_mutex_unlock(&lock);
        /* Until whoever waits for the lock has had it. */
        while (is_lent)
            usleep(50);
    }
    return NULL;
}

/* Writes seconds as nanoseconds into a file. */
static int tell(const char *path, double seconds)
{
    FILE *file = fopen(path, "we");
    return file && fprintf(file, "%.0f", seconds * 1e9) > 0 && fclose(file) == 0;
}

static void *sleeper(void *unused)
{
    usleep(300000);
    return unused;
}

__attribute__((noinline)) void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

__attribute__((noinline)) void join_worker(pthread_t thread)
{
    pthread_join(thread, NULL);
}

/* Touches each page of a file that is not in memory, backwards, so that nothing is read ahead. */
__attribute__((noinline)) void touch_pages(const char *name)
{
    int file = open(name, O_RDONLY | O_CLOEXEC);
    struct stat known;
    if (file < 0 || fstat(file, &known) < 0)
        exit(3);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    char *bytes = mmap(NULL, known.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    madvise(bytes, known.st_size, MADV_RANDOM);
    for (long at = known.st_size - 1; at >= 0; at -= 4096)
        sum += bytes[at];
}

/* Has the kernel work: nearly none of it is the program's own code. */
static __attribute__((noinline)) void ask_kernel(double seconds)
{
    static char much[1 << 20];
    int zeros = open("/dev/zero", O_RDONLY);
    double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
    while (now(CLOCK_THREAD_CPUTIME_ID) < end)
        if (read(zeros, much, sizeof much) <= 0)
            break;
    close(zeros);
}

static int asked[2], answered[2];
static double work;

static void *answerer(void *unused)
{
    char byte;
    while (read(asked[0], &byte, 1) == 1) {
        spin(work);
        if (write(answered[1], &byte, 1) != 1)
            exit(3);
    }
    return unused;
}

/* Answers after 0.3 ms, and puts who asked on the next processor before that. */
static void *mover(void *unused)
{
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    char byte;
    for (int processor = 0; read(asked[0], &byte, 1) == 1;) {
        usleep(300);
        do
            processor = (processor + 1) % CPU_SETSIZE;
        while (!CPU_ISSET(processor, &all));
        cpu_set_t next;
        CPU_ZERO(&next);
        CPU_SET(processor, &next);
        sched_setaffinity(getpid(), sizeof next, &next);
        if (write(answered[1], &byte, 1) != 1)
            exit(3);
    }
    return unused;
}

/* Is blocked for some microseconds, until a thread has answered. */
__attribute__((noinline)) void ask_partner(void)
{
    char byte = '.';
    if (write(asked[1], &byte, 1) != 1 || read(answered[0], &byte, 1) != 1)
        exit(3);
}

/* Waits for something to do, as the main loop of this name does. */
static __attribute__((noinline)) void g_main_loop_run(int end)
{
    struct pollfd waited = { .fd = end, .events = POLLIN };
    poll(&waited, 1, -1);
    __asm__ volatile("");
}

/* Waits for events that never come. */
static void look(int milliseconds)
{
    static int ends[2];
    if (!ends[1] && pipe2(ends, O_CLOEXEC) < 0)
        exit(3);
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN};
    poll(&wanted, 1, milliseconds);
}

__attribute__((noinline)) void nap(int in_poll, long microseconds)
{
    struct timespec time = {.tv_nsec = microseconds * 1000};
    if (in_poll)
        ppoll(NULL, 0, &time, NULL);
    else
        pselect(0, NULL, NULL, NULL, &time, NULL);
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    pthread_t thread;
    if (!strcmp(how, "loop")) {
        spin(0.5);
    } else if (!strcmp(how, "naps")) {
        /* A wait for no descriptor is a sleep, and no look for events. Its end is not put off, so that few are long enough to be kept. */
        prctl(PR_SET_TIMERSLACK, 1L, 0L, 0L, 0L);
        for (int i = 0; i < 300; i++) {
            spin(0.001);
            nap(i % 2, 5);
        }
        nap(0, 200000);
        nap(1, 200000);
    } else if (!strcmp(how, "turns")) {
        /* As much work, but the event loop gets to look for events. */
        for (int i = 0; i < 100; i++) {
            spin(0.005);
            look(0);
        }
    } else if (!strcmp(how, "steps")) {
        /* An event loop that computes in one step, and syncs many times in the other. */
        char byte = '.';
        if (write(1, &byte, 1) != 1 || read(0, &byte, 1) < 0)
            return 3;
        int file = open(words[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        for (int i = 0; i < 2; i++) {
            look(20);
            spin(0.2);
            look(20);
            for (double end = blocked() + 0.2; blocked() < end;)
                if (pwrite(file, &byte, 1, 0) != 1 || fdatasync(file) < 0)
                    return 3;
        }
        look(20);
    } else if (!strcmp(how, "polled")) {
        /* The array of descriptors holds something else as soon as the call has ended. */
        int ends[2];
        if (pipe(ends) < 0)
            return 3;
        static struct pollfd polled;
        polled.fd = ends[0];
        polled.events = POLLIN;
        poll(&polled, 1, 50);
        polled.fd = 0;
    } else if (!strcmp(how, "mutex")) {
        pthread_barrier_init(&held, NULL, 2);
        pthread_create(&thread, NULL, holder, NULL);
        pthread_barrier_wait(&held);
        take_lock();
    } else if (!strcmp(how, "join")) {
        pthread_create(&thread, NULL, sleeper, NULL);
        join_worker(thread);
    } else if (!strcmp(how, "short")) {
        if (pipe2(asked, O_CLOEXEC) < 0 || pipe2(answered, O_CLOEXEC) < 0)
            return 3;
        work = atof(words[2]) / 1e6;
        pthread_create(&thread, NULL, answerer, NULL);
        double before = blocked();
        while (blocked() < before + 0.2)
            for (int i = 0; i < 64; i++) {
                ask_partner();
                spin(work);
            }
        if (!tell(words[3], blocked() - before))
            return 3;
    } else if (!strcmp(how, "lingers")) {
        /* Runs another program. As the call returns, the kernel closes a socket whose partner does not read, and waits a second. */
        struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof here;
        int listener = socket(AF_INET, SOCK_STREAM, 0);
        int sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (bind(listener, (struct sockaddr *)&here, size) || listen(listener, 1) ||
            getsockname(listener, (struct sockaddr *)&here, &size) || connect(sender, (struct sockaddr *)&here, size))
            return 3;
        /* The partner stays open in the next program. */
        if (accept(listener, NULL, NULL) < 0)
            return 3;
        static char bytes[65536];
        while (send(sender, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
            ;
        struct linger second = {.l_onoff = 1, .l_linger = 1};
        setsockopt(sender, SOL_SOCKET, SO_LINGER, &second, sizeof second);
        execl("/bin/true", "true", NULL);
        return 3;
    } else if (!strcmp(how, "pages")) {
        /* Who looks ten times a second sees the program before it does something, and all that it did before it ends. */
        look(200);
        touch_pages(words[2]);
        look(100);
    } else if (!strcmp(how, "starved")) {
        /* Many neighbours on one processor. */
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
        pid_t neighbours[6];
        for (int i = 0; i < 6; i++) {
            neighbours[i] = fork();
            if (neighbours[i] == 0)
                for (;;)
                    sum++;
        }
        spin(0.1);
        for (int i = 0; i < 6; i++) {
            kill(neighbours[i], SIGKILL);
            waitpid(neighbours[i], NULL, 0);
        }
    } else if (!strcmp(how, "shared")) {
        /* Runs and waits by turns, beside a neighbour on one processor, and writes what the kernel counted. */
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
        pid_t neighbour = fork();
        if (neighbour == 0)
            for (;;)
                sum++;
        for (double end = now(CLOCK_MONOTONIC) + 0.8; now(CLOCK_MONOTONIC) < end;) {
            spin(0.003);
            usleep(3000);
        }
        kill(neighbour, SIGKILL);
        waitpid(neighbour, NULL, 0);
        char counts[100];
        int from = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
        int to = open(words[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        long length = read(from, counts, sizeof counts);
        if (length <= 0 || write(to, counts, length) != length)
            return 3;
    } else if (!strcmp(how, "moved")) {
        /* Whoever is asked puts it on another processor before each answer. Writes how long it was blocked. */
        if (pipe2(asked, O_CLOEXEC) < 0 || pipe2(answered, O_CLOEXEC) < 0)
            return 3;
        pthread_create(&thread, NULL, mover, NULL);
        double before = blocked();
        for (int i = 0; i < 600; i++)
            ask_partner();
        if (!tell(words[2], blocked() - before))
            return 3;
    } else if (!strcmp(how, "locks")) {
        /* Waits for a lock that is held for 1.5 ms each time, and for nothing else, and writes how long it was blocked. */
        pthread_create(&thread, NULL, lender, NULL);
        double before = blocked();
        for (int i = 0; i < 100 || blocked() - before < 0.15; i++) {
            while (!is_lent)
                sum++;
            take_lock();
            pthread_mutex_unlock(&lock);
            is_lent = 0;
        }
        if (!tell(words[2], blocked() - before))
            return 3;
    } else if (!strcmp(how, "stops")) {
        /* Is stopped for 15 ms now and then while it computes, and writes for how long: it is blocked by nothing else. */
        pid_t stopped = getpid();
        pid_t stopper = fork();
        if (stopper == 0) {
            for (int i = 0; i < 20; i++) {
                usleep(15000);
                kill(stopped, SIGSTOP);
                usleep(15000);
                kill(stopped, SIGCONT);
            }
            _exit(0);
        }
        double before = blocked();
        while (waitpid(stopper, NULL, WNOHANG) == 0)
            spin(0.002);
        if (!tell(words[2], blocked() - before))
            return 3;
    } else if (!strcmp(how, "reads")) {
        /* A byte of each of so many pipes, each written by a thread when it is asked for. */
        int count = atoi(words[2]);
        if (pipe2(asked, O_CLOEXEC) < 0)
            return 3;
        pthread_create(&thread, NULL, answerer, NULL);
        for (int i = 0; i < count; i++) {
            if (pipe2(answered, O_CLOEXEC) < 0)
                return 3;
            ask_partner();
            close(answered[0]);
            close(answered[1]);
        }
    } else if (!strcmp(how, "stopped")) {
        pid_t parent = getpid();
        volatile int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        volatile int *begun = shared, *done = shared + 1;
        if (fork() == 0) {
            /* Whoever is stopped on the way out of the call that made us is still in that call. */
            while (!*begun)
                usleep(1000);
            kill(parent, SIGSTOP);
            usleep(300000);
            *done = 1;
            kill(parent, SIGCONT);
            _exit(0);
        }
        *begun = 1;
        while (!*done)
            sum++;
        wait(NULL);
    } else if (!strcmp(how, "kernel")) {
        ask_kernel(0.4);
    } else if (!strcmp(how, "rests")) {
        int ends[2];
        pid_t parent = getpid();
        if (pipe(ends))
            return 1;
        if (fork() == 0) {
            usleep(300000);
            kill(parent, SIGSTOP);
            usleep(600000);
            kill(parent, SIGCONT);
            usleep(300000);
            if (write(ends[1], "x", 1) != 1)
                _exit(1);
            _exit(0);
        }
        g_main_loop_run(ends[0]);
        wait(NULL);
    } else {
        return 2;
    }
    return 0;
}
