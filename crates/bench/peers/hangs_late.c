/* A file system in user space whose files answer late: reading late-300 takes 300 ms.
 *
 * Usage: hangs_late DIRECTORY    mounts itself there, prints "ready", and ends with standard input
 *
 * fusermount3 mounts, so that any user may. Only what reading a file asks for is answered. It unmounts itself when its
 * input ends, also because whoever started it was killed.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int device;

/* Has fusermount3 mount, and returns the descriptor that it sends. */
static int
mount_late (const char *directory)
{
  int ends[2], got = -1;
  char option[] = "-o", options[] = "fsname=unjank-bench,subtype=late,auto_unmount", dashes[] = "--", name[] = "fusermount3";
  char *words[] = { name, option, options, dashes, (char *) directory, NULL };
  char number[16], byte, space[CMSG_SPACE (sizeof (int))];
  struct iovec part = { &byte, 1 };
  struct msghdr message;
  struct cmsghdr *control;
  pid_t child;

  if (socketpair (AF_UNIX, SOCK_STREAM, 0, ends) != 0)
    return -1;
  /* If fusermount3 had this end, too, it would never see that it is closed. */
  fcntl (ends[1], F_SETFD, FD_CLOEXEC);
  snprintf (number, sizeof number, "%d", ends[0]);
  setenv ("_FUSE_COMMFD", number, 1);
  if (posix_spawnp (&child, name, NULL, NULL, words, environ) != 0)
    return -1;
  close (ends[0]);
  memset (&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  if (recvmsg (ends[1], &message, MSG_CMSG_CLOEXEC) <= 0)
    return -1;
  control = CMSG_FIRSTHDR (&message);
  if (control != NULL && control->cmsg_type == SCM_RIGHTS)
    memcpy (&got, CMSG_DATA (control), sizeof got);
  /* The other end stays open: fusermount3 unmounts when it is closed, also when this is killed. */
  return got;
}

/* fusermount3 unmounts after the end, too, but some time later. */
static void
unmount_late (const char *directory)
{
  char name[] = "fusermount3", unmount[] = "-u", lazily[] = "-z";
  char *words[] = { name, unmount, lazily, (char *) directory, NULL };
  pid_t child;

  if (posix_spawnp (&child, name, NULL, NULL, words, environ) == 0)
    while (waitpid (child, NULL, 0) < 0 && errno == EINTR)
      ;
}

static void
answer (uint64_t unique, int error, const void *body, size_t length)
{
  struct fuse_out_header header = { (uint32_t) (sizeof header + length), error, unique };
  struct iovec parts[2] = { { &header, sizeof header }, { (void *) body, length } };

  if (writev (device, parts, length > 0 ? 2 : 1) < 0 && errno != ENOENT)
    fprintf (stderr, "hangs_late: cannot answer: %s\n", strerror (errno));
}

static void
describe (uint64_t node, struct fuse_attr *attr)
{
  memset (attr, 0, sizeof *attr);
  attr->ino = node;
  attr->mode = node == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0444;
  attr->size = node == FUSE_ROOT_ID ? 0 : 4096;
  attr->nlink = 1;
  attr->uid = getuid ();
  attr->gid = getgid ();
}

struct late
{
  uint64_t unique, ms;
};

static void *
answer_late (void *data)
{
  struct late *late = data;
  struct timespec left = { (time_t) (late->ms / 1000), (long) (late->ms % 1000 * 1000000) };

  nanosleep (&left, NULL);
  answer (late->unique, 0, "x", 1);
  free (late);
  return NULL;
}

static void
handle (const struct fuse_in_header *header, const void *body)
{
  switch (header->opcode)
    {
    case FUSE_INIT:
      {
        struct fuse_init_out out;

        memset (&out, 0, sizeof out);
        out.major = FUSE_KERNEL_VERSION;
        out.minor = 31;
        out.max_write = 4096;
        answer (header->unique, 0, &out, sizeof out);
        break;
      }
    case FUSE_LOOKUP:
      {
        struct fuse_entry_out out;
        const char *name = body;

        if (header->nodeid != FUSE_ROOT_ID || strncmp (name, "late-", 5) != 0)
          {
            answer (header->unique, -ENOENT, NULL, 0);
            break;
          }
        memset (&out, 0, sizeof out);
        out.nodeid = 2 + strtoul (name + 5, NULL, 10);
        describe (out.nodeid, &out.attr);
        answer (header->unique, 0, &out, sizeof out);
        break;
      }
    case FUSE_GETATTR:
      {
        struct fuse_attr_out out;

        memset (&out, 0, sizeof out);
        describe (header->nodeid, &out.attr);
        answer (header->unique, 0, &out, sizeof out);
        break;
      }
    case FUSE_OPEN:
      {
        struct fuse_open_out out;

        memset (&out, 0, sizeof out);
        out.open_flags = FOPEN_DIRECT_IO;
        answer (header->unique, 0, &out, sizeof out);
        break;
      }
    case FUSE_READ:
      {
        struct late *late = calloc (1, sizeof *late);
        pthread_t thread;

        late->unique = header->unique;
        late->ms = header->nodeid - 2;
        if (pthread_create (&thread, NULL, answer_late, late) == 0)
          pthread_detach (thread);
        break;
      }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
      break;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
      answer (header->unique, 0, NULL, 0);
      break;
    default:
      answer (header->unique, -ENOSYS, NULL, 0);
    }
}

int
main (int argc, char **argv)
{
  static char bytes[1 << 17] __attribute__ ((aligned (8)));
  struct pollfd waited[2];

  if (argc != 2)
    {
      fprintf (stderr, "Usage: hangs_late DIRECTORY\n");
      return 2;
    }
  device = mount_late (argv[1]);
  if (device < 0)
    {
      fprintf (stderr, "hangs_late: cannot mount %s with fusermount3\n", argv[1]);
      return 1;
    }
  printf ("ready\n");
  fflush (stdout);
  waited[0] = (struct pollfd) { device, POLLIN, 0 };
  waited[1] = (struct pollfd) { STDIN_FILENO, POLLIN, 0 };
  while (poll (waited, 2, -1) >= 0 && waited[1].revents == 0)
    {
      ssize_t got = read (device, bytes, sizeof bytes);

      if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
        continue;
      if (got < (ssize_t) sizeof (struct fuse_in_header))
        break;
      handle ((const struct fuse_in_header *) bytes, bytes + sizeof (struct fuse_in_header));
    }
  unmount_late (argv[1]);
  return 0;
}
