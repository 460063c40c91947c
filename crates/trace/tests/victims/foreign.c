// Makes calls of 32-bit code, which have other numbers than those of 64 bits; it needs no library. Built for either.

static char byte;

static int call(int number, int first, const void *second, int third)
{
    int result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(first), "c"((int)(long)second), "d"(third)
                     : "memory");
    return result;
}

void _start(void)
{
    byte = 'x';
    call(4, 1, &byte, 1);  // write: it runs
    call(3, 0, &byte, 1);  // read: until it may go on; of 64 bits it is close
    call(168, 0, 0, 300);  // poll: of 64 bits it is swapoff
    call(118, 1, 0, 0);    // fsync: of 64 bits it is getresuid
    for (;;)
        call(1, 0, 0, 0);  // exit: of 64 bits it is write
}
