/* Reads nothing from its input, with stacks of every shape below it. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP __attribute__((noinline))

static volatile int sink;

/* Private between two that are exported: a name by the nearest symbol is wrong here. */
KEEP int exported_before(int n) { return n + sink; }

KEEP static int look(int n)
{
    char byte;
    int got = (int)read(0, &byte, 1);
    sink += got;
    return got + n;
}

KEEP int exported_after(int n) { return n * 3 + sink; }

KEEP static int deep(int n)
{
    int got = n == 0 ? look(n) : deep(n - 1);
    sink += got;
    return got + 1;
}

KEEP static int wide(int n)
{
    char *room = alloca((size_t)n);
    memset(room, 1, (size_t)n);
    int got = look(room[n - 1]);
    sink += got + room[n / 2];
    return got;
}

KEEP static int aligned(int n)
{
    char room[64] __attribute__((aligned(64)));
    memset(room, n, sizeof room);
    int got = look(room[3]);
    sink += room[5];
    return got;
}

KEEP static int last(int n) { return look(n) + 1; }

/* With optimisation these jump, and leave nothing behind. */
KEEP static int tail(int n) { return last(n + 1); }

KEEP static int many(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
    int got = look(a + i);
    sink += b + c + d + e + f + g + h;
    return got + i;
}

static void handler(int signal)
{
    sink += look(signal);
}

KEEP static int interrupted(int flags)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, 0);
    return raise(SIGUSR1);
}

static void *thread(void *unused)
{
    sink += look(7);
    return unused;
}

static int compare(const void *one, const void *other)
{
    static int looked;
    if (!looked++)
        sink += look(1);
    return *(const int *)one - *(const int *)other;
}

int main(int argc, char **argv)
{
    static char other[1 << 16];
    stack_t alternative = { .ss_sp = other, .ss_size = sizeof other };
    pthread_t id;
    int numbers[] = { 3, 1, 2 };
    (void)argv;
    sink += exported_before(argc) + exported_after(argc);
    deep(300 * argc);
    wide(200000 * argc);
    aligned(argc);
    tail(argc);
    many(1, 2, 3, 4, 5, 6, 7, 8, argc);
    interrupted(0);
    sigaltstack(&alternative, 0);
    interrupted(SA_ONSTACK);
    qsort(numbers, 3, sizeof *numbers, compare);
    if (pthread_create(&id, 0, thread, 0) == 0)
        pthread_join(id, 0);
    return 0;
}
