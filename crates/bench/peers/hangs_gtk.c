/* A program of GTK 3 or GTK 4, whichever it is compiled with, in which hangs are planted: see hangs_plants.h. */
#include "hangs_plants.h"
#include <glib-unix.h>
#include <gtk/gtk.h>

static GMainLoop *loop;
static GDBusConnection *bus;
static GtkWidget *label;

static int
toolkit_call (const char *name, int ms)
{
  GVariant *answer;

  if (bus == NULL)
    return 0;
  answer = g_dbus_connection_call_sync (bus, name, "/", "org.unjank.bench", "Answer", g_variant_new ("(u)", (guint) ms),
                                        NULL, G_DBUS_CALL_FLAGS_NONE, 20000, NULL, NULL);
  if (answer == NULL)
    return 0;
  g_variant_unref (answer);
  return 1;
}

/* Sources are asked before and after each wait; this one is asked first, and leaves the wait itself as it is. */
static gboolean
before_wait (GSource *source, int *timeout)
{
  (void) source;
  *timeout = -1;
  plants_loop_waits ();
  return FALSE;
}

static gboolean
after_wait (GSource *source)
{
  (void) source;
  plants_loop_runs ();
  return FALSE;
}

static gboolean
never (GSource *source, GSourceFunc callback, gpointer data)
{
  (void) source, (void) callback, (void) data;
  return G_SOURCE_CONTINUE;
}

static gboolean
on_order (int descriptor, GIOCondition condition, gpointer data)
{
  (void) descriptor, (void) condition, (void) data;
  if (plants_order ())
    return G_SOURCE_CONTINUE;
  g_main_loop_quit (loop);
  return G_SOURCE_REMOVE;
}

static gboolean
on_blink (gpointer data)
{
  static gboolean on;

  (void) data;
  plants_blink ();
  on = !on;
  gtk_label_set_text (GTK_LABEL (label), on ? "|" : "");
  return G_SOURCE_CONTINUE;
}

int
main (int argc, char **argv)
{
  static GSourceFuncs measure = { before_wait, after_wait, never, NULL, NULL, NULL };
  GSource *source;
  GtkWidget *window;

  if (!plants_begin (argc, argv))
    return 2;
#if GTK_CHECK_VERSION(4, 0, 0)
  if (!gtk_init_check ())
#else
  if (!gtk_init_check (&argc, &argv))
#endif
    {
      fprintf (stderr, "%s: cannot open the display\n", argv[0]);
      return 2;
    }
  if (plants_blinks)
    bus = g_bus_get_sync (G_BUS_TYPE_SESSION, NULL, NULL);
  loop = g_main_loop_new (NULL, FALSE);
  label = gtk_label_new ("");
#if GTK_CHECK_VERSION(4, 0, 0)
  window = gtk_window_new ();
  gtk_window_set_child (GTK_WINDOW (window), label);
  gtk_window_present (GTK_WINDOW (window));
#else
  window = gtk_window_new (GTK_WINDOW_TOPLEVEL);
  gtk_container_add (GTK_CONTAINER (window), label);
  gtk_widget_show_all (window);
#endif
  source = g_source_new (&measure, sizeof (GSource));
  g_source_set_priority (source, G_MININT);
  g_source_attach (source, NULL);
  g_unix_fd_add (STDIN_FILENO, G_IO_IN | G_IO_HUP, on_order, NULL);
  if (plants_blinks)
    g_timeout_add (BLINK_NS / 1000000, on_blink, NULL);
  plants_ready ();
  g_main_loop_run (loop);
  return 0;
}
