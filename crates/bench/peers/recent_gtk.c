/* What GTK does with recent documents, measured from inside and shown as text.
 *
 * Usage: recent_gtk add DIRECTORY COUNT [APPLICATION]   adds DIRECTORY/0 … one after the other, each when the last is on disk
 *        recent_gtk burst DIRECTORY COUNT PAUSE_MS      adds with a pause between, whatever is on disk
 *        recent_gtk busy DIRECTORY COUNT SECONDS        reads the list, says that it is ready, is busy, then adds as `burst` does
 *        recent_gtk list                                prints the URIs of the list, one a line
 *        recent_gtk wait URI SECONDS                    says when it is ready, then waits until the list has the URI
 *        recent_gtk remove URI | purge                  takes one out, or all
 *        recent_gtk read FILE                           prints what GBookmarkFile reads in a file
 *
 * `add` and `burst` print JSON: the time of each call in microseconds and the time until the file was written in
 * milliseconds. `read` prints a line a fact, so that two files can be compared.
 * The place is $XDG_DATA_HOME/recently-used.xbel. All but `read` need a display, Xvfb will do: GTK asks its settings
 * whether and how long to remember, and without a display it takes whatever is on its stack for the answer.
 */
#include <gtk/gtk.h>
#include <stdlib.h>
#include <string.h>

static GMainLoop *loop;
static const char *awaited;

static gint64
now (void)
{
  return g_get_monotonic_time ();
}

static gboolean
quit (gpointer data)
{
  (void) data;
  g_main_loop_quit (loop);
  return G_SOURCE_REMOVE;
}

/* Makes nothing but the wait end. */
static void
changed (GtkRecentManager *manager, gpointer data)
{
  (void) data;
  if (awaited == NULL || gtk_recent_manager_has_item (manager, awaited))
    g_main_loop_quit (loop);
}

static void
print_times (const char *name, const gint64 *times, int count, double unit)
{
  printf ("\"%s\":[", name);
  for (int i = 0; i < count; i++)
    printf ("%s%.3f", i ? "," : "", times[i] / unit);
  printf ("]");
}

static int
add (GtkRecentManager *manager, const char *directory, int count, int pause_ms, const char *application)
{
  gint64 *calls = g_new0 (gint64, count + 1), *written = g_new0 (gint64, count + 1);

  for (int i = 0; i < count; i++)
    {
      g_autofree char *path = g_strdup_printf ("%s/%d", directory, i);
      g_autofree char *uri = g_filename_to_uri (path, NULL, NULL);
      GtkRecentData data = { NULL, NULL, (char *) "text/plain", (char *) application, (char *) "cat %u", NULL, FALSE };
      gint64 start = now ();

      if (uri == NULL || !gtk_recent_manager_add_full (manager, uri, &data))
        {
          fprintf (stderr, "recent_gtk: cannot add %s\n", path);
          return 2;
        }
      calls[i] = now () - start;
      if (pause_ms >= 0)
        g_timeout_add (pause_ms, quit, NULL);
      g_main_loop_run (loop);
      written[i] = now () - start;
    }
  if (pause_ms >= 0)
    {
      /* The last additions are written a quarter of a second later. */
      g_timeout_add (1000, quit, NULL);
      g_main_loop_run (loop);
    }
  printf ("{");
  print_times ("call_us", calls, count, 1.0);
  printf (",");
  print_times ("written_ms", written, count, 1000.0);
  printf ("}\n");
  g_free (calls);
  g_free (written);
  return 0;
}

/* As a program that opens a large document: it reads no list meanwhile, and writes the one that it has. */
static int
be_busy (GtkRecentManager *manager, const char *directory, int count, double seconds)
{
  g_list_free_full (gtk_recent_manager_get_items (manager), (GDestroyNotify) gtk_recent_info_unref);
  printf ("ready\n");
  fflush (stdout);
  g_usleep ((gulong) (seconds * G_USEC_PER_SEC));
  return add (manager, directory, count, 0, "recent_gtk");
}

static int
list (GtkRecentManager *manager)
{
  GList *items = gtk_recent_manager_get_items (manager);

  for (GList *item = items; item; item = item->next)
    printf ("%s\n", gtk_recent_info_get_uri (item->data));
  g_list_free_full (items, (GDestroyNotify) gtk_recent_info_unref);
  return 0;
}

static int
wait_for (GtkRecentManager *manager, const char *uri, double seconds)
{
  gint64 start = now ();

  awaited = uri;
  printf ("ready\n");
  fflush (stdout);
  if (!gtk_recent_manager_has_item (manager, uri))
    {
      g_timeout_add ((guint) (seconds * 1000), quit, NULL);
      g_main_loop_run (loop);
    }
  if (!gtk_recent_manager_has_item (manager, uri))
    return 1;
  printf ("{\"seen_ms\":%.3f}\n", (now () - start) / 1000.0);
  return 0;
}

static int
read_file (const char *path)
{
  g_autoptr(GError) error = NULL;
  GBookmarkFile *file = g_bookmark_file_new ();
  char **uris;

  if (!g_bookmark_file_load_from_file (file, path, &error))
    {
      fprintf (stderr, "recent_gtk: %s\n", error->message);
      return 2;
    }
  uris = g_bookmark_file_get_uris (file, NULL);
  for (char **uri = uris; *uri; uri++)
    {
      g_autofree char *mime = g_bookmark_file_get_mime_type (file, *uri, NULL);
      g_autofree char *title = g_bookmark_file_get_title (file, *uri, NULL);
      g_autofree char *description = g_bookmark_file_get_description (file, *uri, NULL);
      g_auto(GStrv) groups = g_bookmark_file_get_groups (file, *uri, NULL, NULL);
      g_auto(GStrv) names = g_bookmark_file_get_applications (file, *uri, NULL, NULL);
      const char *kinds[] = { "added", "modified", "visited" };
      GDateTime *times[] = {
        g_bookmark_file_get_added_date_time (file, *uri, NULL),
        g_bookmark_file_get_modified_date_time (file, *uri, NULL),
        g_bookmark_file_get_visited_date_time (file, *uri, NULL),
      };

      printf ("uri %s\n", *uri);
      for (int i = 0; i < 3; i++)
        if (times[i])
          printf (" %s %" G_GINT64_FORMAT "\n", kinds[i],
                  g_date_time_to_unix (times[i]) * 1000000 + g_date_time_get_microsecond (times[i]));
      if (mime)
        printf (" mime %s\n", mime);
      if (title)
        printf (" title %s\n", title);
      if (description)
        printf (" description %s\n", description);
      if (g_bookmark_file_get_is_private (file, *uri, NULL))
        printf (" private\n");
      for (char **group = groups; group && *group; group++)
        printf (" group %s\n", *group);
      for (char **name = names; name && *name; name++)
        {
          GDateTime *stamp = NULL;
          char *exec = NULL;
          guint count = 0;

          if (g_bookmark_file_get_application_info (file, *uri, *name, &exec, &count, &stamp, NULL))
            printf (" application %s | %s | %u | %" G_GINT64_FORMAT "\n", *name, exec, count,
                    stamp ? g_date_time_to_unix (stamp) * 1000000 + g_date_time_get_microsecond (stamp) : 0);
          g_free (exec);
        }
    }
  g_strfreev (uris);
  g_bookmark_file_free (file);
  return 0;
}

int
main (int argc, char **argv)
{
  const char *verb = argc > 1 ? argv[1] : "";
  GtkRecentManager *manager;
  int status = 2;

  if (strcmp (verb, "read") == 0 && argc == 3)
    return read_file (argv[2]);
  if (!gtk_init_check (&argc, &argv))
    {
      fprintf (stderr, "recent_gtk: cannot open the display\n");
      return 2;
    }
  loop = g_main_loop_new (NULL, FALSE);
  manager = gtk_recent_manager_new ();
  g_signal_connect (manager, "changed", G_CALLBACK (changed), NULL);
  if (strcmp (verb, "add") == 0 && argc >= 4)
    status = add (manager, argv[2], atoi (argv[3]), -1, argc > 4 ? argv[4] : "recent_gtk");
  else if (strcmp (verb, "burst") == 0 && argc == 5)
    {
      g_signal_handlers_disconnect_by_func (manager, changed, NULL);
      status = add (manager, argv[2], atoi (argv[3]), atoi (argv[4]), "recent_gtk");
    }
  else if (strcmp (verb, "busy") == 0 && argc == 5)
    {
      g_signal_handlers_disconnect_by_func (manager, changed, NULL);
      status = be_busy (manager, argv[2], atoi (argv[3]), atof (argv[4]));
    }
  else if (strcmp (verb, "list") == 0)
    status = list (manager);
  else if (strcmp (verb, "wait") == 0 && argc == 4)
    status = wait_for (manager, argv[2], atof (argv[3]));
  else if ((strcmp (verb, "remove") == 0 && argc == 3) || strcmp (verb, "purge") == 0)
    {
      gboolean done = strcmp (verb, "purge") == 0 ? gtk_recent_manager_purge_items (manager, NULL) > 0
                                                  : gtk_recent_manager_remove_item (manager, argv[2], NULL);

      if (done)
        g_main_loop_run (loop);
      status = done ? 0 : 1;
    }
  else
    fprintf (stderr, "Usage: recent_gtk add DIRECTORY COUNT [APPLICATION] | burst DIRECTORY COUNT PAUSE_MS | "
                     "busy DIRECTORY COUNT SECONDS | list | "
                     "wait URI SECONDS | remove URI | purge | read FILE\n");
  g_object_unref (manager);
  return status;
}
