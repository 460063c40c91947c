/* Says of each of many lists, with a NUL behind each, whether GLib takes it, and how many bookmarks it has then. */
#include <glib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    GString *all = g_string_new(NULL);
    char block[65536];
    for (ssize_t length; (length = read(0, block, sizeof block)) > 0;)
        g_string_append_len(all, block, length);
    for (gsize at = 0; at < all->len;) {
        const char *text = all->str + at;
        GBookmarkFile *list = g_bookmark_file_new();
        GError *error = NULL;
        gboolean is_taken = g_bookmark_file_load_from_data(list, text, strlen(text), &error);
        printf("%d\n", is_taken ? g_bookmark_file_get_size(list) : -1);
        g_clear_error(&error);
        g_bookmark_file_free(list);
        at += strlen(text) + 1;
    }
    return 0;
}
