/* Programs on a bus that wait, and one that lets them wait; what it is called decides which it is.

   slow [NAME...]    owns the names, org.example.Slow where none is given; `Late` is answered after 500 ms, `Hang` and
                     `Sync` never, all else at once
   app [--tray]      org.example.App, which does what a program that hangs does: a late answer, 2 s of silence, a call
                     without an answer, a service that does not start
   backup-ui         a call that is answered, and one that is given up */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-event.h>
#include <unistd.h>

static int must(const char *what, int result) {
    if (result < 0) {
        fprintf(stderr, "bus_waits: %s: %s\n", what, strerror(-result));
        exit(1);
    }
    return result;
}

static int answer_late(sd_event_source *source, uint64_t usec, void *call) {
    (void)source, (void)usec;
    must("answer", sd_bus_reply_method_return(call, ""));
    sd_bus_message_unref(call);
    return 0;
}

static int on_message(sd_bus_message *message, void *event, sd_bus_error *error) {
    (void)error;
    if (!sd_bus_message_is_method_call(message, NULL, NULL))
        return 0;
    const char *member = sd_bus_message_get_member(message);
    if (strcmp(member, "Hang") == 0 || strcmp(member, "Sync") == 0)
        return 1;
    if (strcmp(member, "Late") == 0) {
        must("timer", sd_event_add_time_relative(event, NULL, CLOCK_MONOTONIC, 500000, 1, answer_late,
                                                 sd_bus_message_ref(message)));
        return 1;
    }
    must("answer", sd_bus_reply_method_return(message, ""));
    return 1;
}

static void call(sd_bus *bus, const char *to, const char *interface, const char *member, uint64_t usec) {
    sd_bus_message *message = NULL;
    must("call", sd_bus_message_new_method_call(bus, &message, to, "/org/example", interface, member));
    /* What is not answered in time is the point. */
    sd_bus_call(bus, message, usec, NULL, NULL);
    sd_bus_message_unref(message);
}

static int serve(sd_bus *bus, int count, char **names) {
    sd_event *event = NULL;
    must("event", sd_event_default(&event));
    must("filter", sd_bus_add_filter(bus, NULL, on_message, event));
    for (int name = 0; name < count; name++)
        must("name", sd_bus_request_name(bus, names[name], 0));
    must("attach", sd_bus_attach_event(bus, event, 0));
    puts("ready");
    fflush(stdout);
    return sd_event_loop(event) < 0;
}

int main(int argc, char **argv) {
    static char *slow[] = {"org.example.Slow"};
    sd_bus *bus = NULL;
    must("bus", sd_bus_open_user(&bus));
    const char *program = basename(argv[0]);
    if (strcmp(program, "slow") == 0)
        return argc > 1 ? serve(bus, argc - 1, argv + 1) : serve(bus, 1, slow);
    if (strcmp(program, "app") == 0) {
        must("name", sd_bus_request_name(bus, "org.example.App", 0));
        call(bus, "org.example.Slow", "org.example.I", "Late", 5000000);
        call(bus, "org.example.Slow", "org.example.I", "Fast", 5000000);
        sleep(2);
        call(bus, "org.example.Slow", "org.example.I", "Hang", 1500000);
        call(bus, "org.example.Gone", "org.example.I", "Start", 500000);
        return 0;
    }
    call(bus, "org.example.Backup", "org.example.Backup", "Start", 5000000);
    call(bus, "org.example.Backup", "org.example.Backup", "Sync", 1200000);
    return 0;
}
