/* Waits for a byte in a function whose frame has the shape that is asked for: frame_pointers SHAPE [STEP]. */
#include <alloca.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))
#define WITHOUT_POINTER __attribute__((noinline, noclone, optimize("omit-frame-pointer")))

static volatile int sink;

static int waits = 1;

/* By how many bytes the depths of calls differ that are left on the stack. */
static int step = 16;

/* Says that it is ready, and waits; nothing of it is on the stack of who calls it with a frame of its own. */
static inline __attribute__((always_inline)) int wait_for_byte(void *room)
{
    char byte;
    __asm__ volatile("" : : "r"(room) : "memory");
    if (!waits)
        return 0;
    return write(1, "r", 1) != 1 || read(0, &byte, 1) != 1;
}

KEEP int none(int n) { return wait_for_byte(&n); }

KEEP int small(int n)
{
    char room[48];
    return wait_for_byte(room) + n;
}

KEEP int of_128(int n)
{
    char room[104];
    return wait_for_byte(room) + n;
}

KEEP int large(int n)
{
    char room[2000];
    return wait_for_byte(room) + n;
}

KEEP int of_pages(int n)
{
    char room[3 * 4096 + 32];
    return wait_for_byte(room) + n;
}

KEEP int of_many_pages(int n)
{
    char room[17 * 4096 + 32];
    return wait_for_byte(room) + n;
}

KEEP int keeps(int n)
{
    char room[64];
    int a = sink, b = sink + n, c = sink * n, d = sink - n, e = sink ^ n;
    int got = wait_for_byte(room);
    sink = a;
    return got + a * b + c * d + e;
}

WITHOUT_POINTER int of_nine(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
    return wait_for_byte(&i) + a + b + c + d + e + f + g + h + i;
}

KEEP int pushes(int n) { return of_nine(1, 2, 3, 4, 5, 6, 7, 8, n) + sink; }

KEEP int names_it(int n)
{
    int got = pushes(n) + sink;
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

KEEP int takes_room(int n)
{
    size_t size = waits ? (size_t)n * 300 : 16;
    char *room = alloca(size);
    __asm__ volatile("" : : "r"(room) : "memory");
    return wait_for_byte(room) + n;
}

/* What it was called by before is left on the stack, where it has room that nobody writes to. */
KEEP int leaves(int n)
{
    char room[3000];
    return wait_for_byte(room) + n;
}

KEEP static int one_deeper(int n)
{
    int got = leaves(n) + sink;
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

KEEP static int two_deeper(int n)
{
    int got = one_deeper(n) + sink;
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

KEEP int over_others(int n)
{
    waits = 0;
    sink += two_deeper(n) + one_deeper(n);
    waits = 1;
    int got = leaves(n);
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

KEEP int aligned(int n)
{
    _Alignas(64) char room[64];
    return wait_for_byte(room) + n;
}

/* Calls a function from many depths, which it leaves on the stack, and then to wait. */
KEEP static int from_deeper(int (*function)(int), int bytes)
{
    volatile char room[bytes];
    room[0] = 1;
    int got = function(2) + room[0];
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

KEEP static int left_by_many(int (*function)(int), int n)
{
    waits = 0;
    for (int bytes = 8; bytes < 3000; bytes += step)
        sink += from_deeper(function, bytes);
    waits = 1;
    int got = function(n);
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

#define OVER_MANY(name) \
    KEEP int many_##name(int n) { return left_by_many(name, n) + sink; }
OVER_MANY(takes_room)
OVER_MANY(aligned)
OVER_MANY(pushes)
OVER_MANY(large)
OVER_MANY(of_pages)

/* Calls a function by a pointer, and has something else in the register of the frame pointer. */
int calls_back(int n, int (*function)(int));
__asm__(".text\n"
        ".globl calls_back\n"
        ".type calls_back, @function\n"
        "calls_back:\n"
        ".cfi_startproc\n"
        "push %rbp\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset 6, -16\n"
        "mov $0x12345, %ebp\n"
        "call *%rsi\n"
        "pop %rbp\n"
        ".cfi_def_cfa_offset 8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size calls_back, . - calls_back\n");

KEEP int called_back(int n)
{
    int got = calls_back(n, small) + sink;
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

static struct {
    const char *name;
    int (*function)(int);
} shapes[] = {
    { "none", none },
    { "small", small },
    { "of_128", of_128 },
    { "large", large },
    { "of_pages", of_pages },
    { "of_many_pages", of_many_pages },
    { "keeps", keeps },
    { "names_it", names_it },
    { "takes_room", takes_room },
    { "aligned", aligned },
    { "over_others", over_others },
    { "called_back", called_back },
    { "many_takes_room", many_takes_room },
    { "many_aligned", many_aligned },
    { "many_pushes", many_pushes },
    { "many_large", many_large },
    { "many_of_pages", many_of_pages },
};

int main(int argc, char **argv)
{
    if (argc > 2)
        step = atoi(argv[2]);
    for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++)
        if (argc > 1 && strcmp(argv[1], shapes[at].name) == 0) {
            int got = shapes[at].function(argc);
            __asm__ volatile("" ::: "memory");
            return got;
        }
    return 2;
}
