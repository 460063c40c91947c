/* What programs that measure the dconf client library share. */
#define _POSIX_C_SOURCE 199309L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <dconf.h>
#include <glib.h>

static double
nanoseconds (void)
{
  struct timespec now;

  clock_gettime (CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1e9 + now.tv_nsec;
}

/* Returns the lines of the file that is the first of two arguments, or ends the program. */
static GStrv
lines_of (int argc, char **argv, const char *usage)
{
  g_autofree char *text = NULL;
  g_autoptr (GError) error = NULL;

  if (argc != 3)
    fprintf (stderr, "usage: %s\n", usage);
  else if (!g_file_get_contents (argv[1], &text, NULL, &error))
    fprintf (stderr, "%s\n", error->message);
  else
    return g_strsplit (g_strchomp (text), "\n", -1);
  exit (2);
}
