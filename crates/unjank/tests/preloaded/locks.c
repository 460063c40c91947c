/* POSIX locks on a file that another thread has just closed: a descriptor that somebody else closes would drop them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *name = "locked";
static atomic_int watched = -1, ready;
static int held = -1;

/* Waits until the descriptor is closed, then opens the file and locks it, and keeps the lock. */
static void *lock_it(void *unused) {
  (void) unused;
  int old;
  struct stat about, now;
  stat(name, &about);
  atomic_store(&ready, 1);
  while ((old = atomic_load(&watched)) < 0) ;
  while (fstat(old, &now) == 0 && now.st_ino == about.st_ino) ;
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  held = open(name, O_RDWR);
  if (held < 0 || fcntl(held, F_SETLK, &lock)) perror("lock");
  return NULL;
}

/* Asks in another process whether somebody holds a lock. */
static int is_locked(void) {
  pid_t child = fork();
  if (child == 0) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int file = open(name, O_RDWR);
    fcntl(file, F_GETLK, &lock);
    _exit(lock.l_type != F_UNLCK);
  }
  int status;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

static int kept(int as_stream) {
  pthread_t thread;
  FILE *stream = NULL;
  int file = open(name, O_RDWR | O_CREAT, 0600);
  char text[100];
  memset(text, 'x', sizeof text);
  atomic_store(&watched, -1);
  atomic_store(&ready, 0);
  pthread_create(&thread, NULL, lock_it, NULL);
  while (!atomic_load(&ready)) sched_yield();
  if (as_stream) {
    stream = fdopen(file, "r+");
    fwrite(text, 1, sizeof text, stream);
    atomic_store(&watched, file);
    fclose(stream);
  } else {
    if (write(file, text, sizeof text) != sizeof text) perror("write");
    atomic_store(&watched, file);
    close(file);
  }
  pthread_join(thread, NULL);
  int result = is_locked();
  close(held);
  return result;
}

int main(void) {
  int streams = 0, files = 0;
  for (int i = 0; i < 300; i++) streams += kept(1);
  for (int i = 0; i < 50; i++) files += kept(0);
  /* The kernel itself removes a descriptor a moment before it drops its locks. */
  if (streams >= 298 && files >= 48) printf("locks are kept\n");
  else printf("kept %d of 300 and %d of 50 locks\n", streams, files);
  /* A lock of this process on a file that it has open twice: the close drops it, and not sooner. */
  int one = open(name, O_RDWR), two = open(name, O_RDWR);
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  fcntl(one, F_SETLK, &lock);
  if (write(two, "x", 1) != 1) perror("write");
  printf("before %d", is_locked());
  close(two);
  printf(" after %d\n", is_locked());
  return 0;
}
