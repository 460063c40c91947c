/* Children of fork, vfork and clone, in a program whose other threads close files all the time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int stop;

static int save(const char *name) {
  int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, "text", 4) != 4) return 1;
  return close(file);
}

static void *write_always(void *name) {
  while (!atomic_load(&stop)) if (save(name)) printf("cannot save %s\n", (char *) name);
  return NULL;
}

static int ended(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

/* How much this program has open. */
static int count(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

int main(int argc, char **argv) {
  /* Started anew, it has as much open as at first. */
  if (argc > 1) return count() != atoi(argv[1]);
  char first[20];
  snprintf(first, sizeof first, "%d", count());
  pthread_t threads[3];
  char *names[] = {"thread0", "thread1", "thread2"};
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, write_always, names[i]);
  int forked = 0, vforked = 0, started = 0;
  for (int i = 0; i < 40; i++) {
    pid_t child = fork();
    if (child == 0) _exit(save("forked"));
    forked += ended(child) == 0;
    /* The child has the memory of this process. */
    child = vfork();
    if (child == 0) {
      int file = open("vforked", O_WRONLY | O_CREAT | O_TRUNC, 0600);
      if (write(file, "text", 4) != 4) _exit(9);
      close(file);
      execl(argv[0], argv[0], first, NULL);
      _exit(8);
    }
    vforked += ended(child) == 0;
    child = fork();
    if (child == 0) {
      execl(argv[0], argv[0], first, NULL);
      _exit(8);
    }
    started += ended(child) == 0;
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  printf("forked %d, vforked %d, started %d of 40\n", forked, vforked, started);
  return 0;
}
