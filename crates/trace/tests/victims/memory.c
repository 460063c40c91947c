/* A program whose main thread loses time to a shortage of memory, in the way that its first argument says. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile unsigned long sum;

/* Reads a file that is larger than what its control group allows, beside memory of its own. */
__attribute__((noinline)) void read_too_much(const char *name, char *own, size_t length)
{
    static char bytes[1 << 20];
    for (int i = 0; i < 4; i++) {
        int file = open(name, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            exit(3);
        /* What others have in memory is not charged to us. */
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        while (read(file, bytes, sizeof bytes) > 0)
            own[(sum += 4096) % length] = 1;
        close(file);
    }
}

/* Touches pages of which half are in swap, because the control group holds no more; one by one and backwards. */
__attribute__((noinline)) void touch_swapped(char *memory, size_t length)
{
    for (long at = length - 4096; at >= 0; at -= 4096)
        sum += memory[at];
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    size_t length = 48 << 20;
    if (!strcmp(how, "reclaim")) {
        length = 8 << 20;
        char *own = malloc(length);
        memset(own, 1, length);
        read_too_much(words[2], own, length);
    } else if (!strcmp(how, "swap")) {
        char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; at < length; at += sizeof(long))
            *(long *)(memory + at) = at * 2654435761u;
        /* Who samples sees it before it begins. */
        usleep(20000);
        touch_swapped(memory, length);
    } else {
        return 2;
    }
    return 0;
}
