/* Reads messages, each after its length in four bytes, and prints what sd-bus finds in each on a line.
 * sd-bus takes messages from connections alone, so they come over one to ourselves. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

static void hex(const char *text)
{
    putchar('"');
    for (; *text; text++)
        printf("%02x", (unsigned char)*text);
    putchar('"');
}

static void field(const char *name, const char *text)
{
    if (text != NULL) {
        printf(" %s=", name);
        hex(text);
    }
}

static int values(sd_bus_message *message, int in_variant)
{
    char type;
    const char *contents;
    int found;
    while ((found = sd_bus_message_peek_type(message, &type, &contents)) > 0) {
        union {
            const char *text;
            uint8_t y;
            int b;
            int16_t n;
            uint16_t q;
            int32_t i;
            uint32_t u;
            int64_t x;
            uint64_t t;
        } basic;
        if (contents != NULL) {
            if (sd_bus_message_enter_container(message, type, contents) < 0)
                return -1;
            if (type == 'v')
                printf(" <%s", contents);
            else
                printf(type == 'a' ? " [" : " (");
            if (values(message, type == 'v') < 0)
                return -1;
            printf(type == 'v' ? " >" : type == 'a' ? " ]" : " )");
            if (sd_bus_message_exit_container(message) < 0)
                return -1;
            continue;
        }
        if (sd_bus_message_read_basic(message, type, &basic) < 0)
            return -1;
        switch (type) {
        case 's':
        case 'o':
        case 'g':
            printf(" %c:", type);
            hex(basic.text);
            break;
        case 'y': printf(" y:%u", basic.y); break;
        case 'b': printf(" b:%d", basic.b); break;
        case 'n': printf(" n:%d", basic.n); break;
        case 'q': printf(" q:%u", basic.q); break;
        case 'i': printf(" i:%d", basic.i); break;
        case 'u': printf(" u:%u", basic.u); break;
        case 'x': printf(" x:%" PRId64, basic.x); break;
        case 't': printf(" t:%" PRIu64, basic.t); break;
        case 'd': printf(" d:%016" PRIx64, basic.t); break;
        default: return -1;
        }
    }
    return found;
}

static int seen(sd_bus_message *message, void *data, sd_bus_error *error)
{
    uint8_t type;
    uint64_t serial = 0, reply = 0;
    const sd_bus_error *failed = sd_bus_message_get_error(message);
    (void)error;
    sd_bus_message_get_type(message, &type);
    sd_bus_message_get_cookie(message, &serial);
    sd_bus_message_get_reply_cookie(message, &reply);
    printf("%d %" PRIu64 " %" PRIu64 " flags=%d%d%d", type, serial, reply,
           sd_bus_message_get_expect_reply(message) || type != SD_BUS_MESSAGE_METHOD_CALL ? 0 : 1,
           sd_bus_message_get_auto_start(message) ? 0 : 1,
           sd_bus_message_get_allow_interactive_authorization(message) ? 1 : 0);
    field("path", sd_bus_message_get_path(message));
    field("interface", sd_bus_message_get_interface(message));
    field("member", sd_bus_message_get_member(message));
    field("error", failed != NULL ? failed->name : NULL);
    field("destination", sd_bus_message_get_destination(message));
    field("sender", sd_bus_message_get_sender(message));
    field("signature", sd_bus_message_get_signature(message, 1));
    if (values(message, 0) < 0)
        printf(" refused");
    printf("\n");
    ++*(unsigned *)data;
    return 1;
}

int main(void)
{
    int ends[2];
    unsigned count = 0, sent = 0;
    uint32_t length;
    sd_bus *bus;
    char heard[4096];
    const char answer[] = "DATA\r\nOK 0123456789abcdef0123456789abcdef\r\nAGREE_UNIX_FD\r\n";
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0 || sd_bus_new(&bus) < 0)
        return 1;
    if (sd_bus_set_fd(bus, ends[0], ends[0]) < 0 || sd_bus_add_filter(bus, NULL, seen, &count) < 0 || sd_bus_start(bus) < 0)
        return 1;
    if (read(ends[1], heard, sizeof heard) <= 0 || write(ends[1], answer, sizeof answer - 1) < 0)
        return 1;
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        char *bytes = malloc(length);
        if (fread(bytes, 1, length, stdin) != length || write(ends[1], bytes, length) != (ssize_t)length)
            return 1;
        free(bytes);
        sent++;
        while (count < sent) {
            int done = sd_bus_process(bus, NULL);
            if (done < 0)
                return 2;
            /* It may answer, which nobody wants to hear. */
            recv(ends[1], heard, sizeof heard, MSG_DONTWAIT);
            if (done == 0 && count < sent && sd_bus_wait(bus, 200000) <= 0) {
                printf("refused\n");
                count++;
            }
        }
    }
    return 0;
}
