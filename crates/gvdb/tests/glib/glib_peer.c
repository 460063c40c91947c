/* Answers what GLib makes of bytes and texts, so that the tests can compare.
 *
 * Each line of input is "OPERATION TYPE HEX"; each gets one line of output. TYPE is "-" for none.
 *   normal    normal form of the bytes          -> "1 HEX" if they were normal form, else "0 HEX"
 *   swap      the same in the other byte order  -> "1 HEX"
 *   print     text with annotations             -> "1 HEX"
 *   bare      text without annotations          -> "1 HEX"
 *   parse     value of a text                   -> "1 HEX" of a serialised v, or "0 HEX" of the error
 *   printable (no input)                        -> for each code point 1 if printable, 0 if not, 2 if not assigned
 */
#include <glib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
print_hex (int flag, const guchar *data, gsize size)
{
  printf ("%d ", flag);
  for (gsize i = 0; i < size; i++)
    printf ("%02x", data[i]);
  putchar ('\n');
}

static guchar *
read_hex (const char *text, gsize *size)
{
  guchar *data = g_malloc (strlen (text) / 2 + 1);
  unsigned byte;

  for (*size = 0; sscanf (text + 2 * *size, "%2x", &byte) == 1; (*size)++)
    data[*size] = (guchar) byte;
  data[*size] = 0;
  return data;
}

/* Makes the value anew from its children, so that its bytes come from the serialiser alone. */
static GVariant *
rebuild (GVariant *value)
{
  GVariantBuilder builder;
  GVariant *copy, *child;
  gsize i, count;

  if (!g_variant_is_container (value))
    return g_variant_ref (value);
  g_variant_builder_init (&builder, g_variant_get_type (value));
  count = g_variant_n_children (value);
  for (i = 0; i < count; i++)
    {
      child = g_variant_get_child_value (value, i);
      copy = rebuild (child);
      g_variant_builder_add_value (&builder, copy);
      g_variant_unref (copy);
      g_variant_unref (child);
    }
  return g_variant_ref_sink (g_variant_builder_end (&builder));
}

static void
print_value (int flag, GVariant *value)
{
  GVariant *copy = rebuild (value);

  print_hex (flag, g_variant_get_data (copy), g_variant_get_size (copy));
  g_variant_unref (copy);
}

static void
answer_bytes (const char *operation, const char *type, const guchar *data, gsize size)
{
  GBytes *bytes = g_bytes_new (data, size);
  GVariant *raw = g_variant_ref_sink (g_variant_new_from_bytes (G_VARIANT_TYPE (type), bytes, FALSE));
  int normal = g_variant_is_normal_form (raw);
  GVariant *value = g_variant_get_normal_form (raw);

  if (strcmp (operation, "normal") == 0)
    print_value (normal, value);
  else if (strcmp (operation, "swap") == 0)
    {
      GVariant *swapped = g_variant_byteswap (raw);
      print_value (1, swapped);
      g_variant_unref (swapped);
    }
  else
    {
      char *text = g_variant_print (value, strcmp (operation, "print") == 0);
      print_hex (1, (const guchar *) text, strlen (text));
      g_free (text);
    }
  g_variant_unref (value);
  g_variant_unref (raw);
  g_bytes_unref (bytes);
}

static void
answer_text (const char *type, const char *text)
{
  GError *error = NULL;
  GVariant *value = g_variant_parse (strcmp (type, "-") ? G_VARIANT_TYPE (type) : NULL, text, NULL, NULL, &error);

  if (value != NULL)
    {
      GVariant *boxed = g_variant_ref_sink (g_variant_new_variant (value));
      print_value (1, boxed);
      g_variant_unref (boxed);
      g_variant_unref (value);
    }
  else if (error != NULL)
    print_hex (0, (const guchar *) error->message, strlen (error->message));
  else
    print_hex (0, NULL, 0);
  g_clear_error (&error);
}

static void
ignore_log (const gchar *domain, GLogLevelFlags level, const gchar *message, gpointer data)
{
  /* A text with an escape that is no character makes GLib complain and give no error. */
}

int
main (void)
{
  char *line = NULL;
  size_t capacity = 0;

  g_log_set_default_handler (ignore_log, NULL);
  while (getline (&line, &capacity, stdin) > 0)
    {
      char *rest = g_strchomp (line);
      const char *operation = strsep (&rest, " ");
      const char *type = rest ? strsep (&rest, " ") : "-";
      gsize size;
      guchar *data = read_hex (rest ? rest : "", &size);

      if (strcmp (operation, "parse") == 0)
        answer_text (type, (const char *) data);
      else if (strcmp (operation, "printable") == 0)
        {
          for (gunichar c = 0; c < 0x110000; c++)
            putchar (!g_unichar_isdefined (c) ? '2' : g_unichar_isprint (c) ? '1' : '0');
          putchar ('\n');
        }
      else
        answer_bytes (operation, type, data, size);
      g_free (data);
    }
  free (line);
  return 0;
}
