/* Reads the key /a/b through libdconf once for each line on its input, and prints the value. */
#include <dconf.h>
#include <stdio.h>

int main(void)
{
  DConfClient *client = dconf_client_new();
  char line[16];

  while (fgets(line, sizeof line, stdin) != NULL) {
    GVariant *value = dconf_client_read(client, "/a/b");
    char *text = value != NULL ? g_variant_print(value, FALSE) : g_strdup("unset");
    printf("%s\n", text);
    fflush(stdout);
    g_free(text);
    if (value != NULL)
      g_variant_unref(value);
  }
  g_object_unref(client);
  return 0;
}
