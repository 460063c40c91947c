/* Measures how long single writes through the dconf client library take, each until its answer.
 *
 * Usage: dconf_write CHANGES WARM_UP
 *
 * CHANGES is a file with one change a line: a kind, a key and, unless the key is reset, its value as text, with a tab
 * between them. The changes are made one after another. Each but the first WARM_UP prints one line: its kind and the
 * nanoseconds until its answer.
 */
#include "dconf_peer.h"

int
main (int argc, char **argv)
{
  g_autoptr (GError) error = NULL;
  g_auto (GStrv) lines = lines_of (argc, argv, "dconf_write CHANGES WARM_UP");
  int warm_up = atoi (argv[2]);
  DConfClient *client = dconf_client_new ();

  for (int i = 0; lines[i] != NULL; i++)
    {
      g_auto (GStrv) fields = g_strsplit (lines[i], "\t", 3);
      GVariant *value = NULL;

      if (fields[0] == NULL || fields[1] == NULL)
        {
          fprintf (stderr, "line %d is no change\n", i + 1);
          return 2;
        }
      if (fields[2] != NULL)
        {
          value = g_variant_parse (NULL, fields[2], NULL, NULL, &error);
          if (value == NULL)
            {
              fprintf (stderr, "line %d: %s\n", i + 1, error->message);
              return 2;
            }
        }
      double start = nanoseconds ();

      if (!dconf_client_write_sync (client, fields[1], value, NULL, NULL, &error))
        {
          fprintf (stderr, "%s: %s\n", fields[1], error->message);
          return 1;
        }
      double end = nanoseconds ();

      if (i >= warm_up)
        printf ("%s %.0f\n", fields[0], end - start);
    }

  g_object_unref (client);
  return 0;
}
