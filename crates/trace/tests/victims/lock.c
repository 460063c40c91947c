/* A thread takes a lock and waits for a byte; the main thread waits for the lock. */
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int taken[2];

static void *holder(void *unused)
{
    char byte = 'r';
    pthread_mutex_lock(&lock);
    if (write(taken[1], &byte, 1) == 1 && read(0, &byte, 1) == 1)
        pthread_mutex_unlock(&lock);
    return unused;
}

int main(void)
{
    pthread_t thread;
    char byte;
    if (pipe(taken) || pthread_create(&thread, 0, holder, 0) || read(taken[0], &byte, 1) != 1)
        return 1;
    if (write(1, "r", 1) != 1)
        return 1;
    pthread_mutex_lock(&lock);
    return 0;
}
