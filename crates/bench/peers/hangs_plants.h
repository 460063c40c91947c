/* Hangs that are planted in a program of a toolkit, and what the program itself knows of them.
 *
 * A program of a toolkit includes this file, calls plants_begin() before its main loop, plants_loop_waits() before and
 * plants_loop_runs() after each wait of that loop, plants_blink() twice a second if it blinks, and plants_order() when
 * standard input can be read. It defines toolkit_call(), which asks the session's bus and waits for the answer.
 *
 * Usage: PROGRAM DIRECTORY TOOLKIT blink|rest [LATE-DIRECTORY RESOLVER-PORT]
 * An order is a line `PLANT MILLISECONDS`. Each line of standard output is one of
 *   ready                                        the main loop is about to wait for the first time
 *   plant NAME BEGIN END RAN READY               a plant has ended; how long the thread ran and was ready meanwhile
 *   cannot NAME WHY                              it could not be planted
 *   step BEGIN END                               the main loop was away from its wait for 50 ms and more
 *   late BEGIN END                               a timer was late by 50 ms and more
 * All times are nanoseconds of CLOCK_MONOTONIC. The program ends when standard input does.
 */
#ifndef HANGS_PLANTS_H
#define HANGS_PLANTS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <resolv.h>
#include <sched.h>
#include <semaphore.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PLANT __attribute__ ((noinline, noclone, used))
#define NOTABLE_NS 50000000LL
#define BLINK_NS 500000000LL
#define COLD_BYTES (48LL << 20)
#define PAGE 4096LL

extern char **environ;

/* Asks `name` on the session's bus for an answer after so many milliseconds. Returns whether one came. */
static int toolkit_call (const char *name, int ms);

static const char *plants_directory, *plants_toolkit, *plants_late;
static int plants_port, plants_blinks, plants_schedstat = -1, plants_clock = -1;
static int64_t plants_step, plants_due;
static unsigned plants_seed = 20;
static char plants_cold[4096], plants_saved[4096];
static char *plants_swapped;

static int64_t
plants_now (void)
{
  struct timespec now;

  clock_gettime (CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Counts for how long this thread is on processors, from switch to switch, as `perf stat` does. The scheduler's own sum is wrong
 * by some 20 microseconds for each switch on a busy virtual machine: a fourth of the time of many short waits. */
static int
plants_open_clock (void)
{
  struct perf_event_attr wanted;

  memset (&wanted, 0, sizeof wanted);
  wanted.size = sizeof wanted;
  wanted.type = PERF_TYPE_SOFTWARE;
  wanted.config = PERF_COUNT_SW_TASK_CLOCK;
  wanted.exclude_kernel = 1;
  wanted.exclude_hv = 1;
  return (int) syscall (SYS_perf_event_open, &wanted, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* For how long this thread has run, and was ready to. */
static void
plants_account (int64_t *ran, int64_t *ready)
{
  char text[128] = "";
  long long first = 0, second = 0;
  uint64_t count = 0;

  if (plants_schedstat >= 0 && pread (plants_schedstat, text, sizeof text - 1, 0) > 0)
    sscanf (text, "%lld %lld", &first, &second);
  *ran = plants_clock >= 0 && read (plants_clock, &count, sizeof count) == sizeof count ? (int64_t) count : first;
  *ready = second;
}

static void
plants_loop_waits (void)
{
  int64_t now = plants_now ();

  if (plants_step != 0 && now - plants_step >= NOTABLE_NS)
    {
      printf ("step %lld %lld\n", (long long) plants_step, (long long) now);
      fflush (stdout);
    }
  plants_step = 0;
}

static void
plants_loop_runs (void)
{
  plants_step = plants_now ();
}

static void
plants_blink (void)
{
  int64_t now = plants_now ();

  if (plants_due != 0 && now - plants_due >= NOTABLE_NS)
    {
      printf ("late %lld %lld\n", (long long) plants_due, (long long) now);
      fflush (stdout);
    }
  plants_due = now + BLINK_NS;
}

/* Has the kernel forget the pages of a file. */
static int
plants_open_cold (const char *path)
{
  int file = open (path, O_RDONLY | O_CLOEXEC);

  if (file >= 0)
    {
      posix_fadvise (file, 0, 0, POSIX_FADV_DONTNEED);
      posix_fadvise (file, 0, 0, POSIX_FADV_RANDOM);
    }
  return file;
}

static int64_t
plants_place (int64_t number)
{
  /* A step that shares no divisor with the number of pages reaches each of them. */
  return number * 5381 % (COLD_BYTES / PAGE) * PAGE;
}

static PLANT const char *
plant_sync (int ms)
{
  static char bytes[64 << 10];
  int64_t end = plants_now () + ms * 1000000LL;
  int file = open (plants_saved, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const char *why = file < 0 ? "its file cannot be created" : NULL;

  while (why == NULL && plants_now () < end)
    {
      memset (bytes, rand_r (&plants_seed), sizeof bytes);
      if (pwrite (file, bytes, sizeof bytes, 0) < 0 || fsync (file) != 0)
        why = "its file cannot be written";
    }
  close (file);
  return why;
}

static PLANT const char *
plant_cold_read (int ms)
{
  char page[PAGE];
  int64_t end = plants_now () + ms * 1000000LL;
  int file = plants_open_cold (plants_cold);
  int64_t first = rand_r (&plants_seed);
  const char *why = file < 0 ? "its file cannot be read" : NULL;

  for (int64_t number = 0; why == NULL && plants_now () < end; number++)
    if (pread (file, page, sizeof page, plants_place (first + number)) < 0)
      why = "its file cannot be read";
  close (file);
  return why;
}

static PLANT const char *
plant_mapped (int ms)
{
  int64_t end = plants_now () + ms * 1000000LL;
  int file = plants_open_cold (plants_cold);
  char *bytes = (char *) mmap (NULL, COLD_BYTES, PROT_READ, MAP_SHARED, file, 0);
  volatile char sum = 0;
  int64_t first = rand_r (&plants_seed);

  close (file);
  if (bytes == MAP_FAILED)
    return "its file cannot be mapped";
  madvise (bytes, COLD_BYTES, MADV_RANDOM);
  for (int64_t number = 0; plants_now () < end; number++)
    sum = (char) (sum + ((volatile char *) bytes)[plants_place (first + number)]);
  munmap (bytes, COLD_BYTES);
  return NULL;
}

/* In a group of processes with less memory than the file has: each page that is read has to push out another. Nothing is read ahead:
   where a disk reads megabytes at once, the pages that it has yet to read would fill the group, and the kernel end the program. */
static PLANT const char *
plant_reclaim (int ms)
{
  int64_t end = plants_now () + ms * 1000000LL;
  int file = plants_open_cold (plants_cold);
  char *bytes = (char *) mmap (NULL, COLD_BYTES, PROT_READ, MAP_SHARED, file, 0);
  volatile char sum = 0;

  close (file);
  if (bytes == MAP_FAILED)
    return "its file cannot be mapped";
  madvise (bytes, COLD_BYTES, MADV_RANDOM);
  for (int64_t place = 0; plants_now () < end; place = (place + PAGE) % COLD_BYTES)
    sum = (char) (sum + ((volatile char *) bytes)[place]);
  munmap (bytes, COLD_BYTES);
  return NULL;
}

/* Moves memory to the swap, for plant_swap() to get it back. */
static PLANT const char *
plant_pageout (int ms)
{
  (void) ms;
  if (plants_swapped == NULL)
    {
      plants_swapped = (char *) mmap (NULL, COLD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (plants_swapped == MAP_FAILED)
        return "there is no memory";
      madvise (plants_swapped, COLD_BYTES, MADV_RANDOM);
      for (int64_t place = 0; place < COLD_BYTES; place += 4)
        *(int *) (plants_swapped + place) = rand_r (&plants_seed);
    }
#ifdef MADV_PAGEOUT
  if (madvise (plants_swapped, COLD_BYTES, MADV_PAGEOUT) != 0)
    return "the kernel moves no memory to the swap";
#endif
  return NULL;
}

static PLANT const char *
plant_swap (int ms)
{
  int64_t end = plants_now () + ms * 1000000LL;
  volatile char sum = 0;
  int64_t first = rand_r (&plants_seed);

  if (plants_swapped == NULL)
    return "there is nothing in the swap";
  for (int64_t number = 0; plants_now () < end; number++)
    sum = (char) (sum + ((volatile char *) plants_swapped)[plants_place (first + number)]);
  return NULL;
}

/* Reads a cold file through a ring of io_uring, and waits for each read. */
static PLANT const char *
plant_io_uring (int ms)
{
  static char page[64 << 10];
  int64_t end = plants_now () + ms * 1000000LL;
  int64_t first = rand_r (&plants_seed);
  struct io_uring_params params;
  const char *why = NULL;
  int ring, file;
  char *submissions, *completions;
  struct io_uring_sqe *entries;

  memset (&params, 0, sizeof params);
  ring = (int) syscall (SYS_io_uring_setup, 1, &params);
  if (ring < 0)
    return "the kernel allows no io_uring";
  submissions = (char *) mmap (NULL, params.sq_off.array + params.sq_entries * sizeof (unsigned), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
  completions = (char *) mmap (NULL, params.cq_off.cqes + params.cq_entries * sizeof (struct io_uring_cqe),
                               PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_CQ_RING);
  entries = (struct io_uring_sqe *) mmap (NULL, params.sq_entries * sizeof (struct io_uring_sqe), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
  file = plants_open_cold (plants_cold);
  if (submissions == MAP_FAILED || completions == MAP_FAILED || entries == MAP_FAILED || file < 0)
    why = "the ring cannot be mapped";
  for (int64_t number = 0; why == NULL && plants_now () < end; number++)
    {
      unsigned *tail = (unsigned *) (submissions + params.sq_off.tail);
      unsigned *array = (unsigned *) (submissions + params.sq_off.array);
      unsigned *head = (unsigned *) (completions + params.cq_off.head);

      memset (&entries[0], 0, sizeof entries[0]);
      entries[0].opcode = IORING_OP_READ;
      entries[0].fd = file;
      entries[0].addr = (uintptr_t) page;
      entries[0].len = PAGE;
      entries[0].off = (uint64_t) plants_place (first + number);
      array[*tail & (params.sq_entries - 1)] = 0;
      __atomic_store_n (tail, *tail + 1, __ATOMIC_RELEASE);
      if (syscall (SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 && errno != EINTR)
        why = "the ring takes no read";
      __atomic_store_n (head, *(unsigned *) (completions + params.cq_off.tail), __ATOMIC_RELEASE);
    }
  munmap (submissions, params.sq_off.array + params.sq_entries * sizeof (unsigned));
  munmap (completions, params.cq_off.cqes + params.cq_entries * sizeof (struct io_uring_cqe));
  munmap (entries, params.sq_entries * sizeof (struct io_uring_sqe));
  close (file);
  close (ring);
  return why;
}

static pthread_mutex_t plants_lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t plants_wanted, plants_held;
static int plants_held_ms;

/* A thread that holds a lock and sleeps meanwhile. */
static void *
plants_hold (void *data)
{
  for (;;)
    {
      while (sem_wait (&plants_wanted) != 0)
        ;
      pthread_mutex_lock (&plants_lock);
      sem_post (&plants_held);
      usleep ((unsigned) plants_held_ms * 1000);
      pthread_mutex_unlock (&plants_lock);
    }
  return data;
}

static PLANT const char *
plant_lock (int ms)
{
  plants_held_ms = ms;
  sem_post (&plants_wanted);
  while (sem_wait (&plants_held) != 0)
    ;
  pthread_mutex_lock (&plants_lock);
  pthread_mutex_unlock (&plants_lock);
  return NULL;
}

static PLANT const char *
plant_computing (int ms)
{
  int64_t end = plants_now () + ms * 1000000LL;
  volatile uint64_t sum = 1;

  while (plants_now () < end)
    for (int step = 0; step < 20000; step++)
      sum = sum * 6364136223846793005u + 1442695040888963407u;
  return NULL;
}

/* Computes on the processor on which its neighbours do, too. */
static PLANT const char *
plant_neighbours (int ms)
{
  int64_t end = plants_now () + ms * 1000000LL;
  volatile uint64_t sum = 1;
  cpu_set_t before, one;

  if (sched_getaffinity (0, sizeof before, &before) != 0)
    return "the processors cannot be chosen";
  CPU_ZERO (&one);
  for (int at = 0; CPU_COUNT (&one) == 0 && at < CPU_SETSIZE; at++)
    if (CPU_ISSET (at, &before))
      CPU_SET (at, &one);
  sched_setaffinity (0, sizeof one, &one);
  while (plants_now () < end)
    for (int step = 0; step < 20000; step++)
      sum = sum * 6364136223846793005u + 1442695040888963407u;
  sched_setaffinity (0, sizeof before, &before);
  return NULL;
}

static PLANT const char *
plant_dbus_call (int ms)
{
  char name[256];

  snprintf (name, sizeof name, "org.unjank.bench.Answers_%s", plants_toolkit);
  return toolkit_call (name, ms) ? NULL : "the service does not answer";
}

static PLANT const char *
plant_dbus_start (int ms)
{
  char name[256];

  (void) ms;
  snprintf (name, sizeof name, "org.unjank.bench.Starts_%s", plants_toolkit);
  return toolkit_call (name, 0) ? NULL : "the service does not start";
}

static PLANT const char *
plant_resolver (int ms)
{
  struct addrinfo hints, *found = NULL;
  char host[128];

  if (plants_port == 0)
    return "there is no resolver";
  if (res_init () != 0)
    return "the resolver cannot be chosen";
  _res.nscount = 1;
  _res.nsaddr_list[0].sin_family = AF_INET;
  _res.nsaddr_list[0].sin_addr.s_addr = htonl (INADDR_LOOPBACK);
  _res.nsaddr_list[0].sin_port = htons ((unsigned short) plants_port);
  _res.retrans = 5;
  _res.retry = 1;
  _res.options &= ~(unsigned long) (RES_DNSRCH | RES_DEFNAMES);
  memset (&hints, 0, sizeof hints);
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  snprintf (host, sizeof host, "late-%d.unjank.example.", ms);
  if (getaddrinfo (host, "80", &hints, &found) == 0)
    freeaddrinfo (found);
  return NULL;
}

static PLANT const char *
plant_child (int ms)
{
  char seconds[32];
  char name[] = "sleep";
  char *words[] = { name, seconds, NULL };
  pid_t child;
  int status;

  snprintf (seconds, sizeof seconds, "%d.%03d", ms / 1000, ms % 1000);
  if (posix_spawnp (&child, name, NULL, NULL, words, environ) != 0)
    return "sleep cannot be run";
  while (waitpid (child, &status, 0) < 0 && errno == EINTR)
    ;
  return NULL;
}

/* Reads a file of a file system in user space that answers late. */
static PLANT const char *
plant_late_file (int ms)
{
  char path[4096], byte;
  int file;

  if (plants_late == NULL || *plants_late == 0)
    return "there is no file system that answers late";
  snprintf (path, sizeof path, "%s/late-%d", plants_late, ms);
  file = open (path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return "its file cannot be opened";
  if (read (file, &byte, 1) < 0)
    {
      close (file);
      return "its file cannot be read";
    }
  close (file);
  return NULL;
}

/* A wait that is no cause to be judged: the bench sees by it that the recorder follows this program. */
static PLANT const char *
plant_sleep (int ms)
{
  usleep ((unsigned) ms * 1000);
  return NULL;
}

static const struct
{
  const char *name;
  const char *(*run) (int ms);
} plants[] = {
  { "sync", plant_sync },         { "cold-read", plant_cold_read },   { "mapped", plant_mapped },
  { "reclaim", plant_reclaim },   { "pageout", plant_pageout },       { "swap", plant_swap },
  { "io-uring", plant_io_uring }, { "lock", plant_lock },             { "computing", plant_computing },
  { "neighbours", plant_neighbours },                                 { "dbus-call", plant_dbus_call },
  { "dbus-start", plant_dbus_start }, { "resolver", plant_resolver }, { "child", plant_child },
  { "late-file", plant_late_file },   { "sleep", plant_sleep },
};

static void
plants_run (const char *name, int ms)
{
  int64_t begin, end, ran[2], ready[2];
  const char *why = "it is not known";

  plants_account (&ran[0], &ready[0]);
  begin = plants_now ();
  for (size_t at = 0; at < sizeof plants / sizeof plants[0]; at++)
    if (strcmp (plants[at].name, name) == 0)
      why = plants[at].run (ms);
  end = plants_now ();
  plants_account (&ran[1], &ready[1]);
  if (why == NULL)
    printf ("plant %s %lld %lld %lld %lld\n", name, (long long) begin, (long long) end, (long long) (ran[1] - ran[0]),
            (long long) (ready[1] - ready[0]));
  else
    printf ("cannot %s %s\n", name, why);
  fflush (stdout);
}

/* Reads orders; returns whether more can come. */
static int
plants_order (void)
{
  static char text[4096];
  static size_t held;
  ssize_t got = read (STDIN_FILENO, text + held, sizeof text - held - 1);
  char *line = text, *newline;

  if (got <= 0)
    return 0;
  held += (size_t) got;
  text[held] = 0;
  while ((newline = strchr (line, '\n')) != NULL)
    {
      char name[64];
      int ms = 0;

      *newline = 0;
      if (sscanf (line, "%63s %d", name, &ms) == 2)
        plants_run (name, ms);
      line = newline + 1;
    }
  held = strlen (line);
  memmove (text, line, held + 1);
  return held + 1 < sizeof text;
}

/* Makes the files; returns whether the program may go on. */
static int
plants_begin (int argc, char **argv)
{
  static char bytes[1 << 20];
  pthread_t thread;
  int file;

  if (argc < 4)
    {
      fprintf (stderr, "Usage: %s DIRECTORY TOOLKIT blink|rest [LATE-DIRECTORY RESOLVER-PORT]\n", argv[0]);
      return 0;
    }
  plants_directory = argv[1];
  plants_toolkit = argv[2];
  plants_blinks = strcmp (argv[3], "blink") == 0;
  plants_late = argc > 4 ? argv[4] : NULL;
  plants_port = argc > 5 ? atoi (argv[5]) : 0;
  plants_schedstat = open ("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  plants_clock = plants_open_clock ();
  snprintf (plants_cold, sizeof plants_cold, "%s/%s.cold", plants_directory, plants_toolkit);
  snprintf (plants_saved, sizeof plants_saved, "%s/%s.saved", plants_directory, plants_toolkit);
  sem_init (&plants_wanted, 0, 0);
  sem_init (&plants_held, 0, 0);
  if (!plants_blinks)
    return 1;
  file = open (plants_cold, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  for (int64_t place = 0; place < COLD_BYTES; place += (int64_t) sizeof bytes)
    {
      memset (bytes, rand_r (&plants_seed), sizeof bytes);
      if (write (file, bytes, sizeof bytes) != (ssize_t) sizeof bytes)
        {
          fprintf (stderr, "%s: cannot write %s: %s\n", argv[0], plants_cold, strerror (errno));
          return 0;
        }
    }
  /* What is not on the disk yet cannot be forgotten. */
  fsync (file);
  close (file);
  return pthread_create (&thread, NULL, plants_hold, NULL) == 0;
}

static void
plants_ready (void)
{
  printf ("ready\n");
  fflush (stdout);
}

#endif
