/* Two programs on a bus that measure themselves: one answers after a while, one calls. Part of the tests of unjank bus. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <time.h>

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* Answers after as many microseconds as it is asked for, and prints its caller's serial and how long it had the call. */
static int held(sd_bus_message *call, void *data, sd_bus_error *error) {
  uint64_t begin = now(), cookie = 0;
  uint32_t wait_us = 0;
  (void)data;
  (void)error;
  sd_bus_message_read(call, "u", &wait_us);
  sd_bus_message_get_cookie(call, &cookie);
  while (now() - begin < (uint64_t)wait_us * 1000u) {
  }
  int done = sd_bus_reply_method_return(call, "u", wait_us);
  sd_bus_flush(sd_bus_message_get_bus(call));
  printf("%" PRIu64 " %" PRIu64 "\n", cookie, now() - begin);
  fflush(stdout);
  return done;
}

static const sd_bus_vtable methods[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("Hold", "u", "u", held, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_VTABLE_END,
};

int main(int count, char **words) {
  sd_bus *bus = NULL;
  if (count < 2 || sd_bus_open_user(&bus) < 0) return 2;
  if (strcmp(words[1], "serve") == 0) {
    if (sd_bus_add_object_vtable(bus, NULL, "/timed", "org.unjank.Timed", methods, NULL) < 0) return 2;
    if (sd_bus_request_name(bus, "org.unjank.Timed", 0) < 0) return 2;
    for (;;) {
      int done = sd_bus_process(bus, NULL);
      if (done < 0) return 0;
      if (done == 0 && sd_bus_wait(bus, UINT64_MAX) < 0) return 0;
    }
  }
  for (int at = 0; at < atoi(words[1]); at++) {
    sd_bus_message *call = NULL, *answer = NULL;
    uint64_t cookie = 0;
    sd_bus_message_new_method_call(bus, &call, "org.unjank.Timed", "/timed", "org.unjank.Timed", "Hold");
    sd_bus_message_append(call, "u", (uint32_t)(500 + 300 * (at % 7)));
    uint64_t begin = now();
    if (sd_bus_call(bus, call, 0, NULL, &answer) < 0) return 1;
    uint64_t took = now() - begin;
    sd_bus_message_get_cookie(call, &cookie);
    printf("%" PRIu64 " %" PRIu64 "\n", cookie, took);
    sd_bus_message_unref(call);
    sd_bus_message_unref(answer);
  }
  return 0;
}
