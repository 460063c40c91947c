/* Uses the recent documents, the applications and the MIME types of libunjank, rightly and wrongly.
 * Run with a HOME of its own, as: documents DIRECTORY */
#define _GNU_SOURCE
#include <unjank.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static void documents_are_added_listed_and_watched(void)
{
    unjank_recents *recents, *other;
    CHECK(unjank_recents_open(NULL) == -EINVAL);
    CHECK(unjank_recents_open(&recents) == 0 && unjank_recents_open(&other) == 0);
    size_t count = 77;
    CHECK(unjank_recents_list(recents, NULL, &count) == 0 && count == 0);
    struct pollfd ready = {.fd = unjank_recents_fd(recents), .events = POLLIN};
    CHECK(ready.fd >= 0 && unjank_recents_changed(recents) == 0);
    unjank_addition addition = {.size = sizeof addition};
    CHECK(unjank_recents_add(other, NULL) == -EINVAL);
    CHECK(unjank_recents_add(other, &addition) == -EINVAL);
    addition.document = "/home/ann/caf\xff \n.txt";
    CHECK(unjank_recents_add(other, &addition) == -EINVAL);
    addition.application = "org.kde.kate";
    addition.command = "kate %u";
    CHECK(unjank_recents_add(other, &addition) == 0);
    do
        CHECK(poll(&ready, 1, 30000) == 1);
    while (unjank_recents_changed(recents) == 0);
    addition.document = "https://example.org/picture.png";
    addition.mime_type = "image/png";
    addition.application = "org.example.Viewer";
    CHECK(unjank_recents_add(other, &addition) == 0);
    CHECK(unjank_recents_add(other, &addition) == 0);
    addition.document = "/tmp/not remembered";
    CHECK(unjank_recents_add(other, &addition) == 1 && strstr(unjank_error_text(), "not remembered") != NULL);
    addition.document = "no scheme";
    CHECK(unjank_recents_add(other, &addition) == -EINVAL);

    unjank_recent recent = {.size = sizeof recent};
    CHECK(unjank_recents_list(recents, NULL, &count) == 0 && count == 2);
    CHECK(unjank_recents_get(recents, 0, &recent) == 0);
    CHECK(strcmp(recent.uri, "https://example.org/picture.png") == 0 && recent.path == NULL);
    CHECK(recent.count == 2 && strcmp(recent.application, "org.example.Viewer") == 0);
    CHECK(unjank_recents_get(recents, 1, &recent) == 0);
    CHECK(strcmp(recent.path, "/home/ann/caf\xff \n.txt") == 0 && strcmp(recent.command, "kate %u") == 0);
    CHECK(recent.used >= recent.added && recent.added > 0 && !recent.is_private);
    CHECK(unjank_recents_get(recents, 2, &recent) == -ENOENT);
    unjank_recents_query query = {.size = sizeof query, .mime_type = "image/*"};
    CHECK(unjank_recents_list(recents, &query, &count) == 0 && count == 1);
    query = (unjank_recents_query){.size = sizeof query, .below = "/home/ann", .most = 5};
    CHECK(unjank_recents_list(recents, &query, &count) == 0 && count == 1);
    char *garbage = malloc(10000001);
    memset(garbage, 'a', 10000000);
    garbage[10000000] = 0;
    addition.document = garbage;
    CHECK(unjank_recents_add(other, &addition) == -ENAMETOOLONG);
    addition.document = "/home/ann/good";
    garbage[1000000] = 0;
    addition.application = garbage;
    CHECK(unjank_recents_add(other, &addition) == -EINVAL);
    free(garbage);
    CHECK(unjank_recents_close(other) == 0 && unjank_recents_close(other) == -EBADF);
    CHECK(unjank_recents_close(recents) == 0 && unjank_recents_changed(recents) == -EBADF);
}

static void put(const char *directory, const char *name, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static void applications_are_found_and_new_ones_too(const char *directory)
{
    char share[3000], applications[3100];
    snprintf(share, sizeof share, "%s/share", directory);
    snprintf(applications, sizeof applications, "%s/applications", share);
    CHECK(mkdir(share, 0755) == 0 && mkdir(applications, 0755) == 0);
    setenv("XDG_DATA_DIRS", share, 1);
    put(applications, "editor.desktop",
        "[Desktop Entry]\nType=Application\nName=Editor\nName[de]=Textbearbeitung\nExec=sh %f\n"
        "MimeType=text/plain;\nCategories=Utility;TextEditor;\nNoDisplay=false\n");
    put(applications, "mimeinfo.cache", "[MIME Cache]\ntext/plain=editor.desktop;viewer.desktop;\n");
    unjank_index *index;
    const char *text;
    const char *const *texts;
    size_t count, length;
    CHECK(unjank_index_open("de_DE.UTF-8", &index) == 0);
    CHECK(unjank_index_find(index, UNJANK_APPS_FOR_TYPE, "text/plain", &count) == 0 && count == 1);
    CHECK(unjank_index_text(index, 0, "Name", &text) == 0 && strcmp(text, "Textbearbeitung") == 0);
    CHECK(unjank_index_text(index, 0, ".id", &text) == 0 && strcmp(text, "editor.desktop") == 0);
    CHECK(unjank_index_text(index, 0, ".path", &text) == 0 && strncmp(text, applications, strlen(applications)) == 0);
    CHECK(unjank_index_text(index, 0, "NoDisplay", &text) == 0 && strcmp(text, "false") == 0);
    CHECK(unjank_index_text(index, 0, "Categories", &text) == -EPROTOTYPE);
    CHECK(unjank_index_text(index, 0, "Icon", &text) == -ENOENT);
    CHECK(unjank_index_text(index, 1, "Name", &text) == -ENOENT);
    CHECK(unjank_index_list(index, 0, "Categories", &texts, &length) == 0 && length == 2);
    CHECK(strcmp(texts[1], "TextEditor") == 0);
    CHECK(unjank_index_find(index, UNJANK_APPS_IN_CATEGORY, "Utility", &count) == 0 && count == 1);
    put(applications, "viewer.desktop", "[Desktop Entry]\nType=Application\nName=Viewer\nExec=sh\n");
    CHECK(unjank_index_find(index, UNJANK_APPS_IN_MENU, NULL, &count) == 0 && count == 2);
    CHECK(unjank_index_find(index, UNJANK_APP_BY_ID, "viewer.desktop", &count) == 0 && count == 1);
    CHECK(unjank_index_find(index, UNJANK_APP_BY_ID, "nothing.desktop", &count) == 0 && count == 0);
    CHECK(unjank_index_find(index, UNJANK_PLUGIN_BY_ID, "no plugin", &count) == 0 && count == 0);
    CHECK(unjank_index_find(index, UNJANK_PLUGINS_IN, "no/such", &count) == 0 && count == 0);
    CHECK(unjank_index_find(index, 99, NULL, &count) == -EINVAL);
    CHECK(unjank_index_find(index, UNJANK_APP_BY_ID, NULL, &count) == -EINVAL);
    CHECK(unjank_index_mime_type(index, "a.txt", &text) == -ENOENT);
    char mime[3100];
    snprintf(mime, sizeof mime, "%s/mime", share);
    CHECK(mkdir(mime, 0755) == 0);
    put(mime, "globs2", "50:text/plain:*.txt\n");
    CHECK(unjank_index_mime_type(index, "/some/where/A.txt", &text) == 0 && strcmp(text, "text/plain") == 0);
    CHECK(unjank_index_close(index) == 0 && unjank_index_close(index) == -EBADF);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    documents_are_added_listed_and_watched();
    applications_are_found_and_new_ones_too(arguments[1]);
    puts("good");
    return 0;
}
