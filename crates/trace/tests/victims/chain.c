/* Calls through three functions, says that it is ready, and waits for a byte. */
#include <unistd.h>

__attribute__((noinline)) static int inner(int n)
{
    char byte;
    if (write(1, "r", 1) != 1)
        return 1;
    int got = (int)read(0, &byte, 1);
    __asm__ volatile("" ::: "memory");
    return got + n;
}

__attribute__((noinline)) int middle(int n)
{
    volatile char room[100];
    room[0] = (char)n;
    int got = inner(n + room[0]);
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

__attribute__((noinline)) int outer(int n)
{
    int got = middle(n + 1);
    __asm__ volatile("" ::: "memory");
    return got + 1;
}

int main(int argc, char **argv)
{
    (void)argv;
    return outer(argc) == 42;
}
