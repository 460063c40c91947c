/* Lists a directory: names at once, attributes after, and the total of both.
 * cc list.c $(pkg-config --cflags --libs unjank) && ./a.out DIRECTORY */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unjank.h>

int main(int count, char **arguments)
{
    unjank_listing *listing;
    if (unjank_listing_open(count > 1 ? arguments[1] : ".", NULL, &listing) < 0) {
        fprintf(stderr, "list: %s\n", unjank_error_text());
        return 1;
    }
    uint64_t names = 0, bytes = 0;
    int more, failed = 0;
    unjank_event event = {.size = sizeof event};
    while ((more = unjank_listing_next(listing, -1, &event)) > 0) {
        if (event.type == UNJANK_NAMES) {
            names += event.count;
        } else if (event.type == UNJANK_ATTRIBUTES) {
            unjank_attributes columns = {.size = sizeof columns};
            if (unjank_listing_attributes(listing, &columns) == 0)
                for (uint32_t row = 0; row < columns.count; row++)
                    bytes += columns.bytes[row];
        } else if (event.type == UNJANK_FAILED) {
            fprintf(stderr, "list: %s\n", strerror(-event.error));
            failed = 1;
        }
    }
    if (more < 0)
        fprintf(stderr, "list: %s\n", unjank_error_text());
    printf("%" PRIu64 " entries, %" PRIu64 " bytes\n", names, bytes);
    unjank_listing_close(listing);
    return failed || more < 0;
}
