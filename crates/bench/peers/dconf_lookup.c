/* Measures how long the dconf client library and a GHashTable take to look keys up.
 *
 * Usage: dconf_lookup KEYS ROUNDS
 *
 * KEYS is a file with one key a line. Each round looks every key up once, in the file's order, first in the
 * dconf client, then in the hash table, and prints one line: nanoseconds a look-up of each, and how many keys
 * the client found. The first round only warms up and prints nothing.
 */
#include "dconf_peer.h"

int
main (int argc, char **argv)
{
  g_auto (GStrv) keys = lines_of (argc, argv, "dconf_lookup KEYS ROUNDS");
  guint count = g_strv_length (keys);
  int rounds = atoi (argv[2]);
  DConfClient *client = dconf_client_new ();
  g_autoptr (GHashTable) table
      = g_hash_table_new_full (g_str_hash, g_str_equal, NULL, (GDestroyNotify) g_variant_unref);

  /* The table holds the values that the client finds, under keys of its own. */
  for (guint i = 0; i < count; i++)
    {
      GVariant *value = dconf_client_read (client, keys[i]);

      if (value != NULL)
        g_hash_table_insert (table, keys[i], value);
    }

  for (int round = 0; round <= rounds; round++)
    {
      guint found = 0;
      guint held = 0;
      double start = nanoseconds ();

      for (guint i = 0; i < count; i++)
        {
          GVariant *value = dconf_client_read (client, keys[i]);

          if (value != NULL)
            {
              found++;
              g_variant_unref (value);
            }
        }
      double between = nanoseconds ();

      for (guint i = 0; i < count; i++)
        held += g_hash_table_lookup (table, keys[i]) != NULL;
      double end = nanoseconds ();

      if (held != found)
        return 1;
      if (round > 0)
        printf ("%.1f %.1f %u\n", (between - start) / count, (end - between) / count, found);
    }

  g_object_unref (client);
  return 0;
}
