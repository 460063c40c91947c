/* Answers the calls of the dconf client library and does nothing else: what is left of a write is the library's and the
 * bus's.
 *
 * Usage: dconf_answer [replace]
 *
 * With "replace" it also does what no service can leave out before it answers: it writes the bytes of the database
 * anew, has them put in the old ones' place, and raises the readers' flag. They are always the same bytes.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <dbus/dbus.h>

static char database[4096], temporary[4104], flag[4096];
static char *image;
static size_t image_len;
static int replaced = -1;

static void
fail (const char *what)
{
  perror (what);
  exit (1);
}

static void
read_database (void)
{
  struct stat status;
  int fd;

  snprintf (database, sizeof database, "%s/dconf/user", getenv ("XDG_CONFIG_HOME"));
  snprintf (temporary, sizeof temporary, "%s.new", database);
  snprintf (flag, sizeof flag, "%s/dconf/user", getenv ("XDG_RUNTIME_DIR"));
  fd = open (database, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fstat (fd, &status) < 0)
    fail (database);
  image_len = status.st_size;
  image = malloc (image_len);
  if (image == NULL || read (fd, image, image_len) != (ssize_t) image_len)
    fail (database);
  close (fd);
}

static void
replace_database (void)
{
  int old = open (database, O_PATH | O_CLOEXEC);
  int fd = open (temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

  if (fd < 0 || write (fd, image, image_len) != (ssize_t) image_len || fsync (fd) < 0)
    fail (temporary);
  if (rename (temporary, database) < 0)
    fail (database);
  close (fd);
  /* The file before the last is freed now, when its reader has opened the last. */
  if (replaced >= 0)
    close (replaced);
  replaced = old;

  fd = open (flag, O_RDWR | O_CLOEXEC);
  if (fd >= 0)
    {
      if (pwrite (fd, "\1", 2, 0) != 2)
        fail (flag);
      close (fd);
      unlink (flag);
    }
}

static void
answer (DBusConnection *bus, DBusMessage *call, unsigned int number)
{
  char tag[64];
  const char *tag_text = tag, *prefix = "/none", *changes[] = { "" };
  const char **list = changes;
  DBusMessage *reply = dbus_message_new_method_return (call);
  DBusMessage *notify =
      dbus_message_new_signal (dbus_message_get_path (call), "ca.desrt.dconf.Writer", "Notify");

  snprintf (tag, sizeof tag, ":1.0:user:%u", number);
  dbus_message_append_args (reply, DBUS_TYPE_STRING, &tag_text, DBUS_TYPE_INVALID);
  dbus_message_append_args (notify, DBUS_TYPE_STRING, &prefix, DBUS_TYPE_ARRAY, DBUS_TYPE_STRING,
                            &list, 1, DBUS_TYPE_STRING, &tag_text, DBUS_TYPE_INVALID);
  dbus_connection_send (bus, reply, NULL);
  dbus_connection_send (bus, notify, NULL);
  dbus_connection_flush (bus);
  dbus_message_unref (reply);
  dbus_message_unref (notify);
}

int
main (int argc, char **argv)
{
  int replaces = argc > 1 && strcmp (argv[1], "replace") == 0;
  DBusConnection *bus = dbus_bus_get (DBUS_BUS_SESSION, NULL);
  unsigned int number = 0;

  if (bus == NULL)
    return 1;
  if (replaces)
    read_database ();
  if (dbus_bus_request_name (bus, "ca.desrt.dconf", DBUS_NAME_FLAG_DO_NOT_QUEUE, NULL)
      != DBUS_REQUEST_NAME_REPLY_PRIMARY_OWNER)
    return 1;
  /* The call that had the bus start this program has come by now. */
  do
    {
      DBusMessage *message;

      while ((message = dbus_connection_pop_message (bus)) != NULL)
        {
          if (dbus_message_is_method_call (message, "ca.desrt.dconf.Writer", "Change"))
            {
              if (replaces)
                replace_database ();
              answer (bus, message, number++);
            }
          dbus_message_unref (message);
        }
    }
  while (dbus_connection_read_write (bus, -1));
  return 0;
}
