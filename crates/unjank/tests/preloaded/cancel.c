/* Threads that are cancelled in functions that stand in front of the C library's, and what they leave. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int cleaned;
static int file;
static int full[2];
static char big[1 << 17];
static int to_close;
static FILE *to_fclose;

static void clean(void *unused) { (void) unused; cleaned++; }

static void do_write(void) { if (write(file, "text", 4) < 0) perror("write"); }
static void do_pwrite(void) { if (pwrite(file, "text", 4, 0) < 0) perror("pwrite"); }
static void do_writev(void) { struct iovec part = {"text", 4}; if (writev(file, &part, 1) < 0) perror("writev"); }
static void do_pwritev(void) { struct iovec part = {"text", 4}; if (pwritev(file, &part, 1, 0) < 0) perror("pwritev"); }
static void do_sendfile(void) { off_t at = 0; if (sendfile(file, file, &at, 1) < 0 && errno != EINVAL) perror("sendfile"); }
static void do_copy(void) { off64_t from = 0, to = 100; if (copy_file_range(file, &from, file, &to, 2, 0) < 0) perror("copy_file_range"); }
static void do_close(void) { close(to_close); }
static void do_close_only(void) { close(dup(1)); }
static void do_fclose(void) { fclose(to_fclose); }
static void do_fsync(void) { fsync(file); }
static void do_fdatasync(void) { fdatasync(file); }
static void do_syncfs(void) { syncfs(file); }
static void do_range(void) { sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE); }
static void do_open(void) { open("file", O_RDONLY); }
static void do_openat(void) { openat(AT_FDCWD, "file", O_RDONLY); }
static void do_creat(void) { creat("created", 0600); }
static void do_fopen(void) { fopen("file", "r"); }
static void do_rename(void) { rename("none", "nothing"); }
static void do_unlink(void) { unlink("none"); }
static void do_mkdir(void) { mkdir("file", 0700); }
static void do_full(void) { while (write(full[1], big, sizeof big) > 0) ; }
static void do_fullv(void) { struct iovec part = {big, sizeof big}; while (writev(full[1], &part, 1) > 0) ; }

struct test { const char *name; void (*run)(void); int blocks; };
static struct test tests[] = {
  {"write", do_write, 0}, {"pwrite", do_pwrite, 0}, {"writev", do_writev, 0}, {"pwritev", do_pwritev, 0},
  {"sendfile", do_sendfile, 0}, {"copy_file_range", do_copy, 0}, {"close", do_close, 0}, {"close of another", do_close_only, 0},
  {"fclose", do_fclose, 0}, {"fsync", do_fsync, 0}, {"fdatasync", do_fdatasync, 0}, {"syncfs", do_syncfs, 0},
  {"sync_file_range", do_range, 0}, {"open", do_open, 0}, {"openat", do_openat, 0}, {"creat", do_creat, 0},
  {"fopen", do_fopen, 0}, {"rename", do_rename, 0}, {"unlink", do_unlink, 0}, {"mkdir", do_mkdir, 0},
  {"write to a full pipe", do_full, 1}, {"writev to a full pipe", do_fullv, 1},
};

static void *run(void *argument) {
  struct test *test = argument;
  int old;
  pthread_cleanup_push(clean, NULL);
  if (!test->blocks) {
    /* Asked for before the call: a function where it is done does it at once. */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    pthread_cancel(pthread_self());
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
  }
  test->run();
  pthread_cleanup_pop(0);
  return "went on";
}

static int descriptors(void) {
  int count = 0;
  DIR *directory = opendir("/proc/self/fd");
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

int main(void) {
  file = open("file", O_RDWR | O_CREAT, 0600);
  if (write(file, "0123456789", 10) != 10 || pipe(full)) perror("set up");
  to_close = open("closed", O_RDWR | O_CREAT, 0600);
  to_fclose = fopen("stream", "w");
  if (ftruncate(to_close, 100) || fputs("some text", to_fclose) < 0) perror("set up");
  for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++) {
    pthread_t thread;
    void *result;
    int before = descriptors();
    cleaned = 0;
    pthread_create(&thread, NULL, run, &tests[i]);
    if (tests[i].blocks) {
      /* Until nothing more goes into the pipe. */
      int last = -1, now = 0;
      for (int same = 0; same < 5; same = now == last ? same + 1 : 0, last = now) {
        usleep(10000);
        now = fcntl(full[1], F_GETPIPE_SZ) < 0 ? 0 : 1;
      }
      pthread_cancel(thread);
    }
    pthread_join(thread, &result);
    printf("%s: %s, cleaned %d, %d more descriptors\n", tests[i].name, result == PTHREAD_CANCELED ? "cancelled" : (char *) result, cleaned, descriptors() - before);
  }
  return 0;
}
