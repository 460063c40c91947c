/* A program of plain Xlib with a main loop of its own, in which hangs are planted: see hangs_plants.h. */
#include "hangs_plants.h"
#include <X11/Xlib.h>
#include <dbus/dbus.h>

static DBusConnection *bus;

static int
toolkit_call (const char *name, int ms)
{
  DBusMessage *call = dbus_message_new_method_call (name, "/", "org.unjank.bench", "Answer"), *answer;
  dbus_uint32_t number = (dbus_uint32_t) ms;

  if (bus == NULL || call == NULL)
    return 0;
  dbus_message_append_args (call, DBUS_TYPE_UINT32, &number, DBUS_TYPE_INVALID);
  answer = dbus_connection_send_with_reply_and_block (bus, call, 20000, NULL);
  dbus_message_unref (call);
  if (answer == NULL)
    return 0;
  dbus_message_unref (answer);
  return 1;
}

static void
draw (Display *display, Window window, GC gc, int on)
{
  if (on)
    XFillRectangle (display, window, gc, 10, 10, 2, 16);
  else
    XClearWindow (display, window);
}

int
main (int argc, char **argv)
{
  Display *display;
  Window window;
  GC gc;
  int64_t next;
  int on = 0;

  if (!plants_begin (argc, argv))
    return 2;
  display = XOpenDisplay (NULL);
  if (display == NULL)
    {
      fprintf (stderr, "%s: cannot open the display\n", argv[0]);
      return 2;
    }
  if (plants_blinks)
    bus = dbus_bus_get (DBUS_BUS_SESSION, NULL);
  if (bus != NULL)
    dbus_connection_set_exit_on_disconnect (bus, FALSE);
  window = XCreateSimpleWindow (display, DefaultRootWindow (display), 0, 0, 100, 40, 0, 0, WhitePixel (display, DefaultScreen (display)));
  gc = XCreateGC (display, window, 0, NULL);
  XSelectInput (display, window, ExposureMask);
  XMapWindow (display, window);
  plants_ready ();
  next = plants_now () + BLINK_NS;
  for (;;)
    {
      struct pollfd waited[2] = { { ConnectionNumber (display), POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };
      int64_t left = (next - plants_now () + 999999) / 1000000;

      while (XPending (display) > 0)
        {
          XEvent event;

          XNextEvent (display, &event);
        }
      plants_loop_waits ();
      poll (waited, 2, !plants_blinks ? -1 : left < 0 ? 0 : (int) left);
      plants_loop_runs ();
      if (plants_blinks && plants_now () >= next)
        {
          plants_blink ();
          next = plants_now () + BLINK_NS;
          draw (display, window, gc, on = !on);
        }
      if (waited[1].revents != 0 && !plants_order ())
        return 0;
    }
}
