/* Results and errno of each function, when it succeeds and when it fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utime.h>

#define SAY(call) do { errno = 77; long result = (long) (call); printf("%s: %ld errno %d\n", #call, result < 0 ? result : result > 0, errno); } while (0)

int main(void) {
  struct iovec part = {"text", 4}, wrong = {(void *) 8, 4};
  char big[3 << 20];
  off_t at = 0;
  off64_t from = 0, to = 0;
  int file = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), other, reading;
  memset(big, 'x', sizeof big);
  SAY(write(file, "text", 4));
  SAY(write(file, big, sizeof big));
  SAY(write(file, (void *) 8, 4));
  SAY(write(-1, "text", 4));
  SAY(pwrite(file, "text", 4, 9));
  SAY(pwrite64(file, "text", 4, -9));
  SAY(writev(file, &part, 1));
  SAY(writev(file, &wrong, 1));
  SAY(pwritev(file, &part, 1, 3));
  SAY(pwritev64(file, &part, -1, 3));
  SAY(sendfile(1000, file, &at, 3));
  SAY(copy_file_range(file, &from, 1000, &to, 9, 0));
  SAY(sync_file_range(file, 0, 0, SYNC_FILE_RANGE_WRITE));
  SAY(fsync(1000));
  SAY(fdatasync(file));
  SAY(syncfs(file));
  SAY(syncfs(1000));
  SAY(close(file));
  SAY(close(file));
  SAY(close(-1));
  reading = open("file", O_RDONLY);
  SAY(close(reading));
  SAY(close(open("file", O_PATH)));
  FILE *stream = fopen("stream", "w");
  SAY(fputs("text", stream));
  SAY(fclose(stream));
  /* What the stream still holds does not go into a full file: its program is told. */
  stream = fopen("/dev/full", "w");
  SAY(fputs("text", stream));
  SAY(fclose(stream));
  stream = fopen("limited", "w");
  struct rlimit limit = {10, 10};
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, SIG_IGN);
  SAY(fputs("more than ten letters", stream));
  SAY(fclose(stream));
  stream = fmemopen(big, 100, "w");
  SAY(fputs("text", stream));
  SAY(fclose(stream));
  stream = fopen("file", "r+");
  char text[5];
  SAY(fread(text, 1, 4, stream));
  SAY(fclose(stream));
  other = dup(1);
  stream = fdopen(other, "w");
  SAY(close(other));
  SAY(fclose(stream));
  SAY(syscall(SYS_getpid));
  SAY(syscall(-1));
  SAY(open("none", O_RDONLY));
  SAY(open64("none/none", O_WRONLY | O_CREAT, 0600));
  SAY(openat(1000, "none", O_RDONLY));
  SAY(creat("none/none", 0600));
  SAY(rename("none", "nothing"));
  SAY(link("none", "nothing"));
  SAY(symlink("none", "file"));
  SAY(mkdir("file", 0700));
  SAY(unlink("none"));
  SAY(remove("none"));
  SAY(truncate("none", 0));
  SAY(utime("none", NULL));
  SAY(utimes("none", NULL));
  SAY(utimensat(AT_FDCWD, "none", NULL, 0));
  SAY(futimens(1000, NULL));
  SAY(fopen("none", "r") == NULL);
  return 0;
}
