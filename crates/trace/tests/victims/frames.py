"""Runs in gdb: stops a program at some of its system calls, and says what gdb sees there, until a line comes in.

Variables: `command` (list), `calls`, `stops`, `skip` (-1: from the loader on).
"""
import shlex
import sys

import gdb

LIMIT = 700


def start_of(lookup):
    """Where the function begins, as gdb has it; -1 where it has none."""
    try:
        said = gdb.execute("info symbol 0x%x" % lookup, to_string=True)
    except gdb.error:
        return -1
    if said.startswith("No symbol"):
        return -1
    distance = said.split(" in section")[0].rsplit(" + ", 1)
    return lookup - (int(distance[1]) if len(distance) == 2 else 0)


def say():
    frame = gdb.newest_frame()
    names = ["rip", "rsp", "rbp", "rbx", "r12", "r13", "r14", "r15"]
    values = ["%x" % (int(frame.read_register(name)) & (2**64 - 1)) for name in names]
    print("registers %x %s" % (gdb.selected_inferior().pid, " ".join(values)))
    is_call = False
    count = 0
    while frame is not None and count < LIMIT:
        pc = frame.pc()
        kind = frame.type()
        if kind == gdb.SIGTRAMP_FRAME:
            is_call = False
        if kind == gdb.TAILCALL_FRAME:
            # A function that has jumped away has left nothing on the stack; gdb infers it.
            frame = frame.older()
            continue
        lookup = pc - 1 if is_call else pc
        what = "inline" if kind == gdb.INLINE_FRAME else "frame"
        print("%s %x %x %s" % (what, pc, start_of(lookup) & (2**64 - 1), frame.name() or "??"))
        if frame.name() == "_start":
            # Above the first function gdb takes the arguments of the program for frames.
            break
        is_call = kind not in (gdb.SIGTRAMP_FRAME,)
        frame = frame.older()
        count += 1
    print("end")
    sys.stdout.flush()
    return sys.stdin.readline()


for setting in ["pagination off", "confirm off", "debuginfod enabled off", "backtrace past-main on",
                "print thread-events off", "disable-randomization off",
                "detach-on-fork on", "width 0"]:
    gdb.execute("set " + setting)
gdb.execute("handle SIGUSR1 nostop noprint pass", to_string=True)
gdb.execute("file " + shlex.quote(command[0]))
gdb.execute("set args " + " ".join(shlex.quote(word) for word in command[1:]) + " < /dev/null > /dev/null 2>&1")
if skip >= 0:
    # What the loader does before the program begins is the same in all of them.
    gdb.execute("set breakpoint pending on")
    gdb.execute("tbreak __libc_start_main", to_string=True)
    gdb.execute("run", to_string=True)
    gdb.execute("catch syscall " + calls)
    gdb.execute("continue", to_string=True)
else:
    gdb.execute("catch syscall " + calls)
    gdb.execute("run", to_string=True)
while stops > 0 and gdb.selected_inferior().pid != 0:
    if skip > 0:
        skip -= 1
    else:
        stops -= 1
        if not say():
            break
    gdb.execute("continue", to_string=True)
if gdb.selected_inferior().pid != 0:
    gdb.execute("kill")
