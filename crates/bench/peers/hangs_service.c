/* What the programs in which hangs are planted wait for: a service on the bus, a resolver, busy neighbours.
 *
 * Usage: hangs_service answers NAME            takes a name on the session's bus, and answers each call when it was told to
 *        hangs_service starts NAME MS          starts for so many milliseconds, answers one call, and ends
 *        hangs_service resolves                prints its port on the loopback, and says late that there is no such name
 *        hangs_service computes MS             computes on the first processor that it may use, for so many milliseconds
 *
 * `answers` ends with the bus, `resolves` with standard input.
 */
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <dbus/dbus.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void
wait_ms (int ms)
{
  struct timespec left = { ms / 1000, ms % 1000 * 1000000L };

  nanosleep (&left, NULL);
}

static int
serve (const char *name, int is_late, int late_ms)
{
  DBusConnection *bus = dbus_bus_get_private (DBUS_BUS_SESSION, NULL);

  if (bus == NULL)
    return 2;
  dbus_connection_set_exit_on_disconnect (bus, FALSE);
  if (is_late)
    wait_ms (late_ms);
  if (dbus_bus_request_name (bus, name, DBUS_NAME_FLAG_DO_NOT_QUEUE, NULL) != DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER)
    return 2;
  /* A call may have come while the name was asked for. */
  do
    {
      DBusMessage *message;

      while ((message = dbus_connection_pop_message (bus)) != NULL)
        {
          dbus_uint32_t ms = 0;

          if (dbus_message_is_method_call (message, "org.unjank.bench", "Answer"))
            {
              DBusMessage *answer = dbus_message_new_method_return (message);

              dbus_message_get_args (message, NULL, DBUS_TYPE_UINT32, &ms, DBUS_TYPE_INVALID);
              if (ms > 0)
                wait_ms ((int) ms);
              dbus_connection_send (bus, answer, NULL);
              dbus_connection_flush (bus);
              dbus_message_unref (answer);
              if (is_late)
                return 0;
            }
          dbus_message_unref (message);
        }
    }
  while (dbus_connection_read_write (bus, -1));
  return 0;
}

struct query
{
  int socket, ms;
  struct sockaddr_in from;
  ssize_t length;
  unsigned char bytes[512];
};

static void *
answer_late (void *data)
{
  struct query *query = data;

  wait_ms (query->ms);
  /* An answer, and that there is no such name. */
  query->bytes[2] |= 0x80;
  query->bytes[3] = 0x83;
  sendto (query->socket, query->bytes, (size_t) query->length, 0, (struct sockaddr *) &query->from, sizeof query->from);
  free (query);
  return NULL;
}

static int
resolve (void)
{
  int socket_ = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in own;
  socklen_t length = sizeof own;
  struct pollfd waited[2] = { { socket_, POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };

  memset (&own, 0, sizeof own);
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
  if (bind (socket_, (struct sockaddr *) &own, sizeof own) != 0
      || getsockname (socket_, (struct sockaddr *) &own, &length) != 0)
    return 2;
  printf ("%d\n", ntohs (own.sin_port));
  fflush (stdout);
  while (poll (waited, 2, -1) >= 0 && waited[1].revents == 0)
    {
      struct query *query = calloc (1, sizeof *query);
      socklen_t size = sizeof query->from;
      pthread_t thread;
      char host[64] = "";

      query->socket = socket_;
      query->length = recvfrom (socket_, query->bytes, sizeof query->bytes, 0, (struct sockaddr *) &query->from, &size);
      /* The first label stands behind the header and its length. */
      if (query->length < 14 || query->bytes[12] >= sizeof host)
        {
          free (query);
          continue;
        }
      memcpy (host, query->bytes + 13, query->bytes[12]);
      if (strncmp (host, "late-", 5) == 0)
        query->ms = atoi (host + 5);
      if (pthread_create (&thread, NULL, answer_late, query) == 0)
        pthread_detach (thread);
    }
  return 0;
}

static int
first_processor (void)
{
  cpu_set_t allowed;

  if (sched_getaffinity (0, sizeof allowed, &allowed) != 0)
    return 0;
  for (int at = 0; at < CPU_SETSIZE; at++)
    if (CPU_ISSET (at, &allowed))
      return at;
  return 0;
}

static int
compute (int ms)
{
  struct timespec now, end;
  cpu_set_t one;

  CPU_ZERO (&one);
  CPU_SET (first_processor (), &one);
  sched_setaffinity (0, sizeof one, &one);
  clock_gettime (CLOCK_MONOTONIC, &end);
  end.tv_sec += ms / 1000;
  end.tv_nsec += ms % 1000 * 1000000L;
  do
    {
      for (volatile int step = 0; step < 20000; step++)
        ;
      clock_gettime (CLOCK_MONOTONIC, &now);
    }
  while ((now.tv_sec - end.tv_sec) * 1000000000LL + now.tv_nsec - end.tv_nsec < 0);
  return 0;
}

int
main (int argc, char **argv)
{
  const char *verb = argc > 1 ? argv[1] : "";

  if (strcmp (verb, "answers") == 0 && argc == 3)
    return serve (argv[2], 0, 0);
  if (strcmp (verb, "starts") == 0 && argc == 4)
    return serve (argv[2], 1, atoi (argv[3]));
  if (strcmp (verb, "resolves") == 0 && argc == 2)
    return resolve ();
  if (strcmp (verb, "computes") == 0 && argc == 3)
    return compute (atoi (argv[2]));
  fprintf (stderr, "Usage: hangs_service answers NAME | starts NAME MS | resolves | computes MS\n");
  return 2;
}
