/* Descriptors by their numbers: none is taken that the program uses, whoever closes or replaces them meanwhile. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int stop, wrong;

static void *write_always(void *name) {
  /* The lowest number that is free, all the time; the others are this program's to choose. */
  while (!atomic_load(&stop)) {
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, "text", 4) != 4 || close(file)) wrong++;
  }
  return NULL;
}

int main(void) {
  int lowest = dup(0);
  close(lowest);
  for (int i = 0; i < 20; i++) {
    int file = open("one", O_WRONLY | O_CREAT, 0600);
    if (file != lowest || write(file, "x", 1) != 1) wrong++;
    close(file);
    FILE *stream = fopen("two", "w");
    if (fileno(stream) != lowest) wrong++;
    fputs("text", stream);
    fclose(stream);
  }
  printf("one thread: wrong %d\n", (int) wrong);
  wrong = 0;
  pthread_t thread;
  pthread_create(&thread, NULL, write_always, "three");
  int own = open("own", O_RDWR | O_CREAT, 0600);
  int marked = fcntl(own, F_DUPFD, 100);
  struct stat about, there;
  fstat(marked, &about);
  for (int round = 0; round < 200; round++) {
    for (int number = 40; number < 60; number++) {
      if (dup2(marked, number) != number) wrong++;
      /* Nobody else has closed it, and it is what it was made. */
      for (int look = 0; look < 3; look++)
        if (fstat(number, &there) || there.st_ino != about.st_ino) wrong++;
      if (close(number)) wrong++;
    }
    if (dup3(marked, 30, O_CLOEXEC) != 30 || fcntl(30, F_GETFD) != FD_CLOEXEC || close(30)) wrong++;
    /* All above those of the thread: what a program does that wants nothing open. */
    if (syscall(SYS_close_range, 110, ~0U, 0)) wrong++;
  }
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  printf("two threads: wrong %d\n", (int) wrong);
  /* As of closefrom: afterwards there is nothing above. */
  syscall(SYS_close_range, 3, ~0U, 0);
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  while (readdir(directory)) count++;
  printf("left %d\n", count);
  return 0;
}
