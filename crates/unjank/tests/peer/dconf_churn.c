/* Random changesets through the real libdconf, checked against a hash table.
 *
 *   dconf_churn write SEED COUNT fast|sync   makes COUNT changesets, checks every key at the end,
 *                                            prints "/path value" lines, sorted, and sets /done
 *   dconf_churn observe                      learns only from the "changed" signal until /done is set,
 *                                            then prints what it learned in the same form
 *
 * Exit status: 0, or 1 with the number of mismatches on stderr.
 */
#include <dconf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static guint64 state;

static guint32 roll(guint32 below)
{
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (guint32) (state >> 32) % below;
}

static gchar *random_path(void)
{
  GString *path = g_string_new("/churn/");
  guint depth = roll(4);
  for (guint i = 0; i < depth; i++)
    g_string_append_printf(path, "d%u/", roll(8));
  g_string_append_printf(path, "key-%u", roll(4000));
  return g_string_free(path, FALSE);
}

static GVariant *random_value(void)
{
  switch (roll(5)) {
  case 0: return g_variant_new_int32((gint32) roll(1000));
  case 1: return g_variant_new_boolean(roll(2));
  case 2: return g_variant_new_take_string(g_strdup_printf("text %u", roll(100000)));
  case 3: return g_variant_new_parsed("[('a', %i), ('b', %i)]", (gint32) roll(9), (gint32) roll(9));
  default: return g_variant_new_double(roll(1000) / 8.0);
  }
}

static gboolean below(gpointer key, gpointer value, gpointer dir)
{
  (void) value;
  return g_str_has_prefix(key, dir);
}

static void print_all(GHashTable *table)
{
  GList *keys = g_list_sort(g_hash_table_get_keys(table), (GCompareFunc) strcmp);
  for (GList *k = keys; k != NULL; k = k->next) {
    gchar *text = g_variant_print(g_hash_table_lookup(table, k->data), TRUE);
    printf("%s %s\n", (gchar *) k->data, text);
    g_free(text);
  }
  g_list_free(keys);
}

static GHashTable *new_table(void)
{
  return g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify) g_variant_unref);
}

static void check(gboolean ok, GError *error)
{
  if (ok)
    return;
  fprintf(stderr, "change failed: %s\n", error->message);
  exit(1);
}

static int write_all(guint64 seed, guint count, gboolean fast)
{
  DConfClient *client = dconf_client_new();
  GHashTable *model = new_table();
  GPtrArray *known = g_ptr_array_new_with_free_func(g_free);
  GError *error = NULL;
  guint mismatches = 0;

  state = seed * 2654435761u + 88172645463325252u;
  check(dconf_client_write_sync(client, "/churn/first", g_variant_new_boolean(TRUE), NULL, NULL, &error), error);
  g_hash_table_insert(model, g_strdup("/churn/first"), g_variant_ref_sink(g_variant_new_boolean(TRUE)));

  for (guint i = 0; i < count; i++) {
    DConfChangeset *set = dconf_changeset_new();
    guint ops = 1 + roll(13);
    gchar *dir = roll(100) < 2 ? g_strdup_printf("/churn/d%u/", roll(8)) : NULL;
    if (dir != NULL) {
      dconf_changeset_set(set, dir, NULL);
      g_hash_table_foreach_remove(model, below, dir);
    }
    while (ops--) {
      guint kind = roll(100);
      gchar *path;
      if (kind >= 75 && known->len > 0)
        path = g_strdup(known->pdata[roll(known->len)]);
      else {
        path = random_path();
        g_ptr_array_add(known, g_strdup(path));
      }
      if (kind >= 90) {
        dconf_changeset_set(set, path, NULL);
        g_hash_table_remove(model, path);
        g_free(path);
      } else {
        GVariant *value = g_variant_ref_sink(random_value());
        dconf_changeset_set(set, path, value);
        g_hash_table_insert(model, path, value);
      }
    }
    check(fast ? dconf_client_change_fast(client, set, &error)
               : dconf_client_change_sync(client, set, NULL, NULL, &error), error);
    dconf_changeset_unref(set);
    g_free(dir);

    /* Reading one's own writes holds at every moment. */
    gchar *probe = known->pdata[roll(known->len)];
    GVariant *seen = dconf_client_read(client, probe);
    GVariant *meant = g_hash_table_lookup(model, probe);
    if ((seen == NULL) != (meant == NULL) || (seen != NULL && !g_variant_equal(seen, meant))) {
      fprintf(stderr, "%s differs after changeset %u\n", probe, i);
      mismatches++;
    }
    if (seen != NULL)
      g_variant_unref(seen);
  }
  dconf_client_sync(client);

  DConfClient *fresh = dconf_client_new();
  for (guint i = 0; i < known->len; i++) {
    GVariant *seen = dconf_client_read(fresh, known->pdata[i]);
    GVariant *meant = g_hash_table_lookup(model, known->pdata[i]);
    if ((seen == NULL) != (meant == NULL) || (seen != NULL && !g_variant_equal(seen, meant))) {
      fprintf(stderr, "%s differs at the end\n", (gchar *) known->pdata[i]);
      mismatches++;
    }
    if (seen != NULL)
      g_variant_unref(seen);
  }
  print_all(model);
  fflush(stdout);
  check(dconf_client_write_sync(client, "/done", g_variant_new_boolean(TRUE), NULL, NULL, &error), error);
  fprintf(stderr, "%u mismatches, %u keys\n", mismatches, g_hash_table_size(model));
  return mismatches != 0;
}

struct observer {
  GHashTable *table;
  GMainLoop *loop;
};

static void learn(DConfClient *client, GHashTable *table, const gchar *path)
{
  gsize length = strlen(path);
  if (path[length - 1] != '/') {
    GVariant *value = dconf_client_read(client, path);
    if (value != NULL)
      g_hash_table_insert(table, g_strdup(path), value);
    else
      g_hash_table_remove(table, path);
    return;
  }
  g_hash_table_foreach_remove(table, below, (gpointer) path);
  gchar **names = dconf_client_list(client, path, NULL);
  for (guint i = 0; names[i] != NULL; i++) {
    gchar *child = g_strconcat(path, names[i], NULL);
    learn(client, table, child);
    g_free(child);
  }
  g_strfreev(names);
}

static void changed(DConfClient *client, const gchar *prefix, GStrv changes, const gchar *tag, gpointer data)
{
  struct observer *observer = data;
  (void) tag;
  for (guint i = 0; changes[i] != NULL; i++) {
    gchar *path = g_strconcat(prefix, changes[i], NULL);
    if (strcmp(path, "/done") == 0)
      g_main_loop_quit(observer->loop);
    else if (g_str_has_prefix(path, "/churn/"))
      learn(client, observer->table, path);
    g_free(path);
  }
}

static int observe(void)
{
  struct observer observer = { new_table(), g_main_loop_new(NULL, FALSE) };
  DConfClient *client = dconf_client_new();
  g_signal_connect(client, "changed", G_CALLBACK(changed), &observer);
  dconf_client_watch_sync(client, "/");
  fprintf(stderr, "observing\n");
  g_main_loop_run(observer.loop);
  print_all(observer.table);
  return 0;
}

int main(int argc, char **argv)
{
  if (argc == 5 && strcmp(argv[1], "write") == 0)
    return write_all(g_ascii_strtoull(argv[2], NULL, 10), (guint) atoi(argv[3]), strcmp(argv[4], "fast") == 0);
  if (argc == 2 && strcmp(argv[1], "observe") == 0)
    return observe();
  fprintf(stderr, "usage: dconf_churn write SEED COUNT fast|sync | observe\n");
  return 2;
}
