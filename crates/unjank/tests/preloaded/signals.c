/* Files that are written and closed in signal handlers, also on small stacks, while the program does the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t rounds, wrong;

static void save(const char *name) {
  int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || write(file, "saved", 5) != 5 || fdatasync(file)) wrong++;
  if (close(file)) wrong++;
  if (rename(name, "last") || unlink("last")) wrong++;
}

static void handle(int signal) {
  (void) signal;
  int before = errno;
  errno = 55;
  save("handler");
  rounds++;
  errno = before;
}

static void crash(int signal) {
  (void) signal;
  save("crash");
  const char text[] = "saved before the end\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(3);
  _exit(0);
}

int main(int argc, char **argv) {
  /* What a program reserves for the handler of its crash: as little as this was common. */
  static char stack[8192];
  stack_t small = {.ss_sp = stack, .ss_size = sizeof stack};
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
  char name[32];
  (void) argv;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
  for (int i = 0; i < 300 || rounds < 20; i++) {
    snprintf(name, sizeof name, "main%d", i % 10);
    int file = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    errno = 44;
    if (file < 0 || write(file, "text", 4) != 4 || close(file) || errno != 44) wrong++;
    FILE *stream = fopen(name, "a");
    if (!stream || fputs("more", stream) < 0 || fclose(stream)) wrong++;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("wrong %d, handled %d\n", (int) wrong, rounds >= 20);
  fflush(stdout);
  sigaltstack(&small, NULL);
  action.sa_handler = crash;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, NULL);
  *(volatile int *) (long) (argc - 1) = 1;
  return 1;
}
