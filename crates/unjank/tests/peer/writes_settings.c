/* A program with a main loop of its own, which writes a setting for each byte that it reads, and waits until it is stored. */

#include <dconf.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static void write_setting(DConfClient *client, int number)
{
    GError *error = NULL;
    if (!dconf_client_write_sync(client, "/a/b", g_variant_new_int32(number), NULL, NULL, &error)) {
        fprintf(stderr, "%s\n", error->message);
        _exit(1);
    }
}

int main(void)
{
    DConfClient *client = dconf_client_new();
    struct pollfd commands = { .fd = 0, .events = POLLIN };
    char command;
    for (int number = 0; poll(&commands, 1, -1) == 1 && read(0, &command, 1) == 1; number++) {
        write_setting(client, number);
        puts("stored");
        fflush(stdout);
    }
    return 0;
}
