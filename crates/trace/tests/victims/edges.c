/* What is hard to trace, a case each: edges CASE [N]. Each case prints what it saw, so that a test can tell whether tracing changed it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static void handler(int signal) {
    (void)signal;
    handled++;
    /* A call of its own, elsewhere on the stack. */
    syscall(SYS_getpgid, 0);
}

static void handle(int signal, int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

/* Reads from a pipe that a child fills after it has sent a signal three times to the blocked reader. */
static int interrupted_read(int flags) {
    int ends[2];
    char byte;
    pipe(ends);
    handle(SIGUSR1, flags);
    pid_t reader = getpid();
    if (fork() == 0) {
        for (int i = 1; i <= 3; i++) {
            char path[64], state[256] = "";
            /* Until the reader sleeps in read: the number of the call is the first word. */
            snprintf(path, sizeof path, "/proc/%d/syscall", reader);
            do {
                int file = open(path, O_RDONLY);
                ssize_t length = pread(file, state, sizeof state - 1, 0);
                state[length > 0 ? length : 0] = 0;
                close(file);
                sched_yield();
            } while (strncmp(state, "0 ", 2) != 0);
            kill(reader, SIGUSR1);
            /* Until it has been handled: the reader tells by its next call, or sleeps again. */
            struct timespec pause = {0, 20 * 1000 * 1000};
            nanosleep(&pause, NULL);
        }
        write(ends[1], "x", 1);
        _exit(0);
    }
    int broken = 0;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) broken++;
    wait(NULL);
    printf("handled %d broken %d\n", (int)handled, broken);
    return 0;
}

static pthread_barrier_t barrier;

static void *one_call(void *unused) {
    (void)unused;
    syscall(SYS_getpgid, 0);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static int threads(int count) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 16384);
    pthread_t *all = calloc(count, sizeof *all);
    pthread_barrier_init(&barrier, NULL, count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&all[i], &attributes, one_call, NULL) != 0) return 3;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < count; i++) pthread_join(all[i], NULL);
    printf("%d threads\n", count);
    return 0;
}

static void *exec_here(void *unused) {
    (void)unused;
    execl("/proc/self/exe", "edges", "after_exec", NULL);
    return NULL;
}

static void *wait_for_ever(void *unused) {
    (void)unused;
    for (;;) pause();
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "";
    int count = argc > 2 ? atoi(argv[2]) : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(which, "restart")) return interrupted_read(SA_RESTART);
    if (!strcmp(which, "eintr")) return interrupted_read(0);
    if (!strcmp(which, "threads")) return threads(count);
    if (!strcmp(which, "stopped")) {
        /* Sleeps on over a stop. */
        pid_t child = fork();
        if (child == 0) {
            struct timespec time = {2, 0};
            _exit(nanosleep(&time, NULL) == 0 ? 0 : 1);
        }
        struct timespec pause = {0, 30 * 1000 * 1000};
        int status;
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &pause, NULL);
        kill(child, SIGSTOP);
        waitpid(child, &status, WUNTRACED);
        int stopped = WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
        kill(child, SIGCONT);
        waitpid(child, &status, WCONTINUED);
        int continued = WIFCONTINUED(status);
        waitpid(child, &status, 0);
        printf("stopped %d continued %d exit %d\n", stopped, continued, WEXITSTATUS(status));
        return 0;
    }
    if (!strcmp(which, "exec_in_thread")) {
        pthread_t other;
        pthread_create(&other, NULL, wait_for_ever, NULL);
        pthread_create(&other, NULL, exec_here, NULL);
        for (;;) pause();
    }
    if (!strcmp(which, "after_exec")) {
        syscall(SYS_getpgid, 0);
        printf("another program, first thread: %d\n", getpid() == (pid_t)syscall(SYS_gettid));
        return 5;
    }
    if (!strcmp(which, "vfork")) {
        for (int i = 0; i < count; i++) {
            if (vfork() == 0) {
                execl("/proc/self/exe", "edges", "nothing", NULL);
                _exit(1);
            }
            wait(NULL);
        }
        printf("%d children\n", count);
        return 0;
    }
    if (!strcmp(which, "nothing")) return 0;
    if (!strcmp(which, "forks")) {
        int ended = 0;
        for (int i = 0; i < count; i++)
            if (fork() == 0) {
                syscall(SYS_getpgid, 0);
                _exit(0);
            }
        while (wait(NULL) > 0) ended++;
        printf("%d ended\n", ended);
        return 0;
    }
    if (!strcmp(which, "signals")) {
        handle(SIGUSR1, 0);
        handle(SIGUSR2, SA_RESTART);
        for (int i = 0; i < count; i++) kill(getpid(), i % 2 ? SIGUSR1 : SIGUSR2);
        printf("%d signals\n", (int)handled);
        return 0;
    }
    if (!strcmp(which, "tracer")) {
        /* Wants to trace its own children, as a debugger does. */
        pid_t child = fork();
        if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 ? 0 : errno);
        int status;
        waitpid(child, &status, 0);
        child = fork();
        if (child == 0) wait_for_ever(NULL);
        long seized = ptrace(PTRACE_SEIZE, child, 0, 0);
        printf("traceme %d seize %ld %d\n", WEXITSTATUS(status), seized, errno);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        return 0;
    }
    if (!strcmp(which, "filtered")) {
        /* Has a filter of its own, which forbids a call that is watched. */
        struct sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpgid, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog filter = {4, program};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return 4;
        long result = syscall(SYS_getpgid, 0);
        printf("result %ld %d\n", result, errno);
        return 0;
    }
    if (!strcmp(which, "killed")) {
        raise(SIGKILL);
        return 1;
    }
    if (!strcmp(which, "exit_under_threads")) {
        pthread_t other;
        for (int i = 0; i < count; i++) pthread_create(&other, NULL, wait_for_ever, NULL);
        return 6;
    }
    if (!strcmp(which, "cpus")) {
        /* Many calls, so that it is bound; then it asks. */
        cpu_set_t set;
        for (int i = 0; i < 2000; i++) syscall(SYS_getpgid, 0);
        sched_getaffinity(0, sizeof set, &set);
        printf("%d cpus\n", CPU_COUNT(&set));
        return 0;
    }
    if (!strcmp(which, "lives_on")) {
        /* Tells its number, waits for a line, and makes watched calls after it. */
        char line[8];
        printf("%d\n", getpid());
        while (read(0, line, sizeof line) < 0 && errno == EINTR) {}
        for (int i = 0; i < 100; i++)
            if (syscall(SYS_getpgid, 0) < 0) return 9;
        printf("lived\n");
        return 7;
    }
    return 2;
}
