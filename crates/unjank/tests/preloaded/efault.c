/* Addresses that are nobody's: the kernel answers with EFAULT, and so must whoever looks at a name before it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#define SAY(call) do { errno = 0; long result = (long) (call); printf("%s: %ld errno %d\n", #call, result < 0 ? result : result > 0, errno); fflush(stdout); } while (0)

static void all(const char *name) {
  int at = open(".", O_RDONLY | O_DIRECTORY);
  SAY(open(name, O_RDONLY));
  SAY(open(name, O_WRONLY | O_CREAT, 0600));
  SAY(open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
  SAY(open64(name, O_RDWR | O_TRUNC));
  SAY(openat(at, name, O_WRONLY));
  SAY(openat64(at, name, O_WRONLY | O_CREAT | O_EXCL, 0600));
  SAY(creat(name, 0600));
  SAY(rename("file", name));
  SAY(rename(name, "other"));
  SAY(renameat(at, "file", at, name));
  SAY(renameat2(at, "file", at, name, 0));
  SAY(link("file", name));
  SAY(linkat(at, "file", at, name, 0));
  SAY(symlink("file", name));
  SAY(symlinkat("file", at, name));
  SAY(mkdir(name, 0700));
  SAY(mkdirat(at, name, 0700));
  SAY(unlink(name));
  SAY(unlinkat(at, name, 0));
  SAY(remove(name));
  SAY(truncate(name, 0));
  SAY(truncate64(name, 0));
  SAY(utime(name, NULL));
  SAY(utimes(name, NULL));
  SAY(lutimes(name, NULL));
  SAY(utimensat(at, name, NULL, 0));
  SAY(fopen(name, "r") == NULL);
  SAY(fopen(name, "w") == NULL);
  close(at);
}

int main(void) {
  close(creat("file", 0600));
  long page = sysconf(_SC_PAGESIZE);
  char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(two + page, page);
  printf("an address below all\n");
  all((const char *) 8);
  printf("an address above all\n");
  all((const char *) -8);
  printf("a name that ends with its page and not with a NUL\n");
  memset(two, 'x', page);
  all(two + page - 5);
  printf("a name that ends with its page\n");
  two[page - 1] = 0;
  for (int i = 0; i < 2; i++) {
    close(open(two + page - 5, O_WRONLY | O_CREAT, 0600));
    SAY(access("xxxx", F_OK));
    SAY(unlink(two + page - 5));
  }
  printf("a name that is too long\n");
  memset(two, 'y', page - 1);
  all(two);
  return 0;
}
