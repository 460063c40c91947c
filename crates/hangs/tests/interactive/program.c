/* An interactive program: it is connected to what looks like a Wayland compositor, waits for commands on that
   connection, and does what each command says before it waits again. It notes the moments before and after in a file.
   Its main loop waits with poll, or with what the third argument says, if it has one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
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

/* As `after` of Tcl and many scripts sleep: they wait for no descriptor. */
__attribute__((noinline)) void nap_in_select(double seconds) {
    struct timeval time = {.tv_usec = seconds * 1e6};
    select(0, NULL, NULL, NULL, &time);
}

__attribute__((noinline)) void nap_in_poll(double seconds) {
    poll(NULL, 0, seconds * 1e3);
}

__attribute__((noinline)) void compute_things(double seconds) {
    volatile double sum = 0;
    for (double end = now() + seconds; now() < end;)
        for (int i = 0; i < 10000; i++) sum += i;
}

/* A pipe that nobody writes to: it waits until its own time limit. */
__attribute__((noinline)) void wait_in_vain(double seconds) {
    int ends[2];
    if (pipe(ends)) return;
    struct pollfd wanted = {.fd = ends[0], .events = POLLIN};
    poll(&wanted, 1, seconds * 1000);
    close(ends[0]);
    close(ends[1]);
}

/* Another process, which answers after as many seconds as it is asked for. */
static int asked[2], answered[2];
static int start_answering(void) {
    if (pipe2(asked, O_CLOEXEC) || pipe2(answered, O_CLOEXEC)) return -1;
    pid_t process = fork();
    if (process) return process;
    close(asked[1]);
    close(answered[0]);
    double seconds;
    while (read(asked[0], &seconds, sizeof seconds) == sizeof seconds) {
        usleep(seconds * 1e6);
        if (write(answered[1], "a", 1) != 1) break;
    }
    _exit(0);
}

__attribute__((noinline)) void wait_for_reply(double seconds) {
    char answer;
    if (write(asked[1], &seconds, sizeof seconds) != sizeof seconds) return;
    struct pollfd wanted = {.fd = answered[0], .events = POLLIN};
    poll(&wanted, 1, -1);
    if (read(answered[0], &answer, 1) != 1) perror("read");
}

/* A loop of its own, which waits for the display, too. */
__attribute__((noinline)) void show_dialog(int display, double seconds) {
    struct pollfd wanted = {.fd = display, .events = POLLIN};
    poll(&wanted, 1, seconds * 1000);
}

/* As Xlib: a handler draws, and the display does not read what is written to it. */
__attribute__((noinline)) void _XSend(int display, double seconds) {
    struct pollfd wanted = {.fd = display, .events = POLLIN};
    poll(&wanted, 1, seconds * 1000);
}
__attribute__((noinline)) void draw_much(int display, double seconds) {
    _XSend(display, seconds);
}

/* The same with an animation: each of its waits is short. */
__attribute__((noinline)) void show_animated_dialog(int display, double seconds) {
    struct pollfd wanted = {.fd = display, .events = POLLIN};
    for (double end = now() + seconds; now() < end;) {
        poll(&wanted, 1, 12);
        usleep(4000);
    }
}

/* A handler with much to do that looks for events every few milliseconds, as one with a bar of progress does. */
__attribute__((noinline)) void look_for_events(struct pollfd *wanted) {
    poll(wanted, 1, 0);
}
__attribute__((noinline)) void serve_while_busy(int display, double seconds) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = display;
    for (double end = now() + seconds; now() < end; look_for_events(&wanted)) compute_things(0.004);
}
/* The same with looks at something else: nobody is served. */
__attribute__((noinline)) void look_elsewhere(int silent, double seconds) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = silent;
    for (double end = now() + seconds; now() < end; look_for_events(&wanted)) compute_things(0.004);
}

/* As a program that has much to do when it starts: it looks for events, and has no time to wait for them. Four times a step is long. */
__attribute__((noinline)) void xcb_wait_for_reply(double seconds) {
    wait_in_vain(seconds);
}
__attribute__((noinline)) void start_slowly(int display, FILE *log) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = display;
    for (int step = 1; step <= 1000; step++) {
        double began = now();
        compute_things(step % 250 ? 0.004 : 0.4);
        if (step % 250 == 0) fprintf(log, "S %.9f %.9f\n", began, now());
        if (step % 50 == 0) xcb_wait_for_reply(0.02);
        look_for_events(&wanted);
    }
    fflush(log);
}

/* As a toolkit that draws its first window: in each step it asks the display from a hundred depths of the stack, which differ from step to
   step, and it looks for events from deeper than those. */
enum { LEVELS = 100, SHIFTS = 8, STEPS = 40 };
__attribute__((noinline)) void ask_from(int level) {
    volatile char deeper[16];
    deeper[0] = 0;
    xcb_wait_for_reply(0);
    if (level) ask_from(level - 1);
    deeper[1] = 0;
}
__attribute__((noinline)) void ask_from_everywhere(int shift) {
    volatile char deeper[16 * (shift + 1)];
    deeper[0] = 0;
    ask_from(LEVELS);
    deeper[1] = 0;
}
__attribute__((noinline)) void look_from(int level, struct pollfd *wanted, void (*look)(struct pollfd *)) {
    volatile char deeper[16];
    deeper[0] = 0;
    if (level)
        look_from(level - 1, wanted, look);
    else
        look(wanted);
    deeper[1] = 0;
}
__attribute__((noinline)) void start_asking(int display, FILE *log) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = display;
    for (int step = 1; step <= 4 * STEPS; step++) {
        double began = now();
        compute_things(step % STEPS ? 0.012 : 0.4);
        if (step % STEPS == 0) fprintf(log, "S %.9f %.9f\n", began, now());
        if (step % 5 == 0) xcb_wait_for_reply(0.02);
        ask_from_everywhere(step % SHIFTS);
        look_from(2 * LEVELS, &wanted, look_for_events);
    }
    fflush(log);
}

/* The same with fewer steps, and it runs its loop each time from another depth. */
enum { LOOPS = 6 };
__attribute__((noinline)) void g_main_context_iteration(struct pollfd *wanted) {
    poll(wanted, 1, 0);
}
__attribute__((noinline)) void start_running(int display, FILE *log) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = display;
    for (int step = 1; step <= 5 * LOOPS; step++) {
        double began = now();
        compute_things(step % LOOPS ? 0.05 : 0.4);
        if (step % LOOPS == 0) fprintf(log, "S %.9f %.9f\n", began, now());
        if (step % 5 == 0) xcb_wait_for_reply(0.02);
        ask_from_everywhere(step % SHIFTS);
        look_from(2 * LEVELS + step, &wanted, g_main_context_iteration);
        ask_from_everywhere((step + 3) % SHIFTS);
    }
    fflush(log);
}

/* A handler whose name says that it waits, and which runs the loop meanwhile. */
__attribute__((noinline)) void save_sync(int display, double seconds) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = display;
    for (double end = now() + seconds; now() < end; g_main_context_iteration(&wanted)) compute_things(0.004);
}

/* Menus, each at another depth: while one is filled its loop looks for events, and then it waits for them at the same place. */
enum { MENUS = 24 };
__attribute__((noinline)) void show_menu(struct pollfd *wanted) {
    for (int look = 0; look < 3; look++) {
        compute_things(look ? 0.012 : 0.04);
        poll(wanted, 1, look < 2 ? 0 : 150);
    }
}
__attribute__((noinline)) void show_menus(int display) {
    static struct pollfd wanted = {.events = POLLIN};
    wanted.fd = display;
    for (int menu = 0; menu < MENUS; menu++) look_from(menu, &wanted, show_menu);
}

/* Two waits from one depth of the stack: that of a dialog, and one for an answer. */
static struct pollfd shown = {.events = POLLIN}, answer = {.events = POLLIN};
__attribute__((noinline)) void show_panel(int display, double seconds) {
    shown.fd = display;
    poll(&shown, 1, seconds * 1000);
}
__attribute__((noinline)) void wait_for_answer_sync(int silent, double seconds) {
    answer.fd = silent;
    poll(&answer, 1, seconds * 1000);
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

enum { COLD_PAGES = 8192, PAGE_BYTES = 4096 };

/* Returns a file of 32 MiB whose pages the kernel has forgotten; they are read in an order that it does not foresee. */
static int open_cold(const char *path) {
    static char bytes[1 << 20];
    int file = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file >= 0) {
        memset(bytes, 7, sizeof bytes);
        for (int part = 0; part < COLD_PAGES * PAGE_BYTES / (int)sizeof bytes; part++)
            if (write(file, bytes, sizeof bytes) != sizeof bytes) return -1;
        fsync(file);
    } else {
        file = open(path, O_RDONLY);
    }
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    return file;
}

static off_t cold_place(int number) {
    return (off_t)(number * 5381L % COLD_PAGES * PAGE_BYTES);
}

__attribute__((noinline)) void touch_mapped_file(const char *path, double seconds) {
    int file = open_cold(path);
    volatile char sum = 0;
    char *bytes = mmap(NULL, COLD_PAGES * PAGE_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (bytes == MAP_FAILED) return;
    madvise(bytes, COLD_PAGES * PAGE_BYTES, MADV_RANDOM);
    int number = 0;
    for (double end = now() + seconds; now() < end; number++)
        sum += ((volatile char *)bytes)[cold_place(number)];
    munmap(bytes, COLD_PAGES * PAGE_BYTES);
}

/* Makes a ring for one operation, and reads or syncs with it. */
__attribute__((noinline)) void read_through_ring(const char *path, double seconds) {
    static char page[PAGE_BYTES];
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
    if (ring < 0) return;
    size_t queue = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t results = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    int both = PROT_READ | PROT_WRITE;
    char *submitted = mmap(NULL, queue, both, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *completed = mmap(NULL, results, both, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry =
        mmap(NULL, params.sq_entries * sizeof *entry, both, MAP_SHARED, ring, IORING_OFF_SQES);
    int file = open_cold(path), number = 0;
    for (double end = now() + seconds; now() < end; number++) {
        unsigned *tail = (unsigned *)(submitted + params.sq_off.tail);
        memset(entry, 0, sizeof *entry);
        entry->opcode = IORING_OP_READ;
        entry->fd = file;
        entry->addr = (unsigned long)page;
        entry->len = sizeof page;
        entry->off = (unsigned long)cold_place(number);
        ((unsigned *)(submitted + params.sq_off.array))[0] = 0;
        __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
        if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) break;
        unsigned *head = (unsigned *)(completed + params.cq_off.head);
        __atomic_store_n(head, *(unsigned *)(completed + params.cq_off.tail), __ATOMIC_RELEASE);
    }
    munmap(submitted, queue);
    munmap(completed, results);
    munmap(entry, params.sq_entries * sizeof *entry);
    close(file);
    close(ring);
}

/* As Tk's main loop: another thread waits for the display, and the first one for a condition. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_waiting, is_ready;
static void *tell_of_events(void *display) {
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (!is_waiting) pthread_cond_wait(&changed, &mutex);
        pthread_mutex_unlock(&mutex);
        struct pollfd wanted = {.fd = *(int *)display, .events = POLLIN};
        poll(&wanted, 1, -1);
        pthread_mutex_lock(&mutex);
        is_waiting = 0;
        is_ready = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
__attribute__((noinline)) void Tcl_WaitForEvent(void) {
    pthread_mutex_lock(&mutex);
    is_waiting = 1;
    pthread_cond_broadcast(&changed);
    while (!is_ready) pthread_cond_wait(&changed, &mutex);
    is_ready = 0;
    pthread_mutex_unlock(&mutex);
}

static void *end_dialog(void *seconds) {
    usleep(*(double *)seconds * 1e6);
    pthread_mutex_lock(&mutex);
    is_ready = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* As a dialog of Tk (`tkwait window`): the same wait, made inside of a step of the main loop. */
__attribute__((noinline)) void show_dialog_of_condition(double seconds) {
    pthread_t ends;
    pthread_create(&ends, NULL, end_dialog, &seconds);
    Tcl_WaitForEvent();
    pthread_join(ends, NULL);
}

/* How long the next sleep of a loop is that sleeps and looks for events in turns, in seconds. */
static double frame = 0.01;

/* Whether that loop sleeps in another function now, as a game does that has left its menu. */
static int is_moved;

__attribute__((noinline)) void sleep_elsewhere(double seconds) {
    volatile char deeper[256];
    deeper[0] = 0;
    usleep(seconds * 1e6);
}

/* Short sleeps by the same function of the C library as that loop's. */
__attribute__((noinline)) void nap_often(double seconds) {
    for (double end = now() + seconds; now() < end;) sleep_elsewhere(0.02);
}

/* As games do, by SDL_PollEvent and SDL_Delay. */
__attribute__((noinline)) void sleep_and_look(int display) {
    volatile char deeper[64];
    char command;
    deeper[0] = 0;
    while (recv(display, &command, 1, MSG_PEEK | MSG_DONTWAIT) < 0) {
        double seconds = frame;
        frame = 0.01;
        if (is_moved)
            sleep_elsewhere(seconds);
        else
            usleep(seconds * 1e6);
    }
}

static void wait_for_events(int display, const char *how) {
    static int epoll = -1;
    if (!strcmp(how, "sleep")) {
        sleep_and_look(display);
    } else if (!strcmp(how, "futex")) {
        Tcl_WaitForEvent();
    } else if (!strcmp(how, "select")) {
        fd_set wanted;
        FD_ZERO(&wanted);
        FD_SET(display, &wanted);
        select(display + 1, &wanted, NULL, NULL, NULL);
    } else if (strcmp(how, "poll")) {
        struct epoll_event event = {.events = EPOLLIN};
        if (epoll < 0) {
            epoll = epoll_create1(EPOLL_CLOEXEC);
            epoll_ctl(epoll, EPOLL_CTL_ADD, display, &event);
        }
        struct pollfd wanted = {.fd = epoll, .events = POLLIN};
        /* "behind": the display is not among what is polled, but behind it. */
        if (!strcmp(how, "behind")) poll(&wanted, 1, -1);
        epoll_wait(epoll, &event, 1, -1);
    } else {
        struct pollfd wanted = {.fd = display, .events = POLLIN};
        poll(&wanted, 1, -1);
    }
}

static void *end_at_once(void *nothing) {
    return nothing;
}

/* From its first thread on, the C library makes the calls of a process from another place. */
static void start_thread(void) {
    pthread_t thread;
    if (!pthread_create(&thread, NULL, end_at_once, NULL)) pthread_join(thread, NULL);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    if (start_answering() < 0) return 5;
    int display = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, arguments[1], sizeof address.sun_path - 1);
    if (connect(display, (struct sockaddr *)&address, sizeof address)) return 3;
    char path[4096];
    snprintf(path, sizeof path, "%s.log", arguments[2]);
    char stored[4096];
    snprintf(stored, sizeof stored, "%s.stored", arguments[2]);
    char cold[4096];
    snprintf(cold, sizeof cold, "%s.cold", arguments[2]);
    FILE *log = fopen(path, "w");
    if (count > 3 && !strncmp(arguments[3], "poll ", strlen("poll "))) {
        if (!strcmp(arguments[3], "poll asking"))
            start_asking(display, log);
        else if (!strcmp(arguments[3], "poll running"))
            start_running(display, log);
        else
            start_slowly(display, log);
        arguments[3] = "poll";
        if (write(display, "d", 1) != 1) return 0;
    }
    pthread_t events;
    if (count > 3 && !strcmp(arguments[3], "futex")) pthread_create(&events, NULL, tell_of_events, &display);
    int silent[2];
    if (pipe(silent)) return 4;
    /* "never": it has no main loop, and a short wait now and then. */
    while (count > 3 && !strcmp(arguments[3], "never")) {
        struct pollfd wanted = {.fd = silent[0], .events = POLLIN};
        poll(&wanted, 1, 1);
        sleep_on_purpose(1.5);
    }
    for (;;) {
        wait_for_events(display, count > 3 ? arguments[3] : "poll");
        double began = now();
        char command;
        if (read(display, &command, 1) != 1) return 0;
        switch (command) {
        case 's': sleep_on_purpose(0.4); break;
        case 'n': nap_in_select(0.4); break;
        case 'D': show_dialog_of_condition(0.6); break;
        case 'N': nap_in_poll(0.4); break;
        case 'c': compute_things(0.4); break;
        case 'r': wait_for_reply(0.4); break;
        case 'i': wait_in_vain(0.4); break;
        case 'd': show_dialog(display, 0.4); break;
        case 'X': draw_much(display, 0.4); break;
        case 'S': save_sync(display, 0.9); break;
        case 'M': show_menus(display); break;
        case 'p': show_panel(display, 0.4); break;
        case 'q': wait_for_answer_sync(silent[0], 0.4); break;
        case 'v': serve_while_busy(display, 0.9); break;
        case 'e': look_elsewhere(silent[0], 0.9); break;
        case 'a': show_animated_dialog(display, 0.9); break;
        case 'l': lock_file(arguments[2]); break;
        case 'f': store_file(stored, 0.3); break;
        case 'm': touch_mapped_file(cold, 0.4); break;
        case 'u': read_through_ring(cold, 0.6); break;
        case 'o': close(open_cold(cold)); break;
        case 'w': wait_for_programs(0.5); break;
        case 'x': execv("/proc/self/exe", arguments); break;
        case 't': start_thread(); break;
        case 'b': sleep_on_purpose(0.02); break;
        case 'z': frame = 0.4; break;
        case 'k': nap_often(0.6); break;
        case 'g': is_moved = 1; break;
        }
        fprintf(log, "%c %.9f %.9f\n", command, began, now());
        fflush(log);
        if (write(display, "d", 1) != 1) return 0;
    }
}
