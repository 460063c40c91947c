"""Attacks the mailbox of a job: `take NAME...`, `flood NAME FILE`, `send NAME FILE GO`.

A name is a path or one of the abstract namespace; each is tried in every way that a socket can be reached.
It prints `ready`, ends with its standard input, and says at last what it got.
"""
import array
import os
import select
import socket
import struct
import sys

KINDS = [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM]


def names(name):
    """The path, and the abstract name that has the same letters."""
    return [name, "\0" + name] if name.startswith("/") else ["\0" + name]


def say(text):
    print(text, flush=True)


def take(wanted):
    """Binds whatever can be bound, and takes all that is sent there."""
    sockets, got = [], 0

    def bind():
        for name in wanted:
            for kind in KINDS:
                one = socket.socket(socket.AF_UNIX, kind)
                try:
                    one.bind(name)
                    if not name.startswith("\0"):
                        os.chmod(name, 0o777)
                    if kind != socket.SOCK_DGRAM:
                        one.listen(64)
                    one.setblocking(False)
                    sockets.append(one)
                except OSError:
                    one.close()

    # A path holds one socket only.
    KINDS.sort(key=lambda kind: kind != socket.SOCK_SEQPACKET)
    bind()
    say("ready")
    tries = 0
    while True:
        ready, _, _ = select.select([sys.stdin] + sockets, [], [], 0.01)
        if tries > 0:
            bind()
            tries -= 1
            if tries == 0:
                say("tried")
        for one in ready:
            if one is sys.stdin:
                if sys.stdin.readline() == "":
                    say("got %d" % got)
                    return
                tries = 100
                continue
            try:
                sockets.append(one.accept()[0])
                continue
            except OSError:
                pass
            try:
                _, control, _, _ = one.recvmsg(64, 4096)
            except OSError:
                control = []
            for _, _, data in control:
                got += 1
                for number in array.array("i", data[: len(data) // 4 * 4]):
                    try:
                        text = os.pread(number, 60, 0)
                    except OSError as error:
                        text = error
                    print("took", os.readlink("/proc/self/fd/%d" % number), text, file=sys.stderr)
            if not control and one in sockets and one.type != socket.SOCK_DGRAM:
                sockets.remove(one)
                one.close()


def send_one(name, kind, descriptor, wait, message=b"f"):
    one = socket.socket(socket.AF_UNIX, kind)
    one.setblocking(False)
    if wait:
        one.settimeout(0.2)
    try:
        one.connect(name)
        numbers = array.array("i", [] if descriptor is None else [descriptor])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if numbers else []
        one.sendmsg([message], rights)
        return one
    except OSError:
        one.close()
        return None


def flood(name, path):
    """Sends as fast as it can and leaves connections open."""
    descriptors = [os.open(path, flags) for flags in (os.O_RDONLY, os.O_PATH)]
    sent, held = 0, []
    say("ready")
    while True:
        for kind in KINDS:
            for descriptor in descriptors:
                one = send_one(names(name)[0], kind, descriptor, False)
                if one:
                    sent += 1
                    held.append(one)
        if len(held) > 400:
            held.clear()
        if select.select([sys.stdin], [], [], 0)[0]:
            say("sent %d" % sent)
            return


def named(descriptor, where):
    """The message of the preloaded library that names a descriptor."""
    device, inode = (where.st_dev, where.st_ino) if where else (0, 1)
    return struct.pack("=B3xIQQ", ord("f"), descriptor, device, inode)


def send(name, path, go):
    """Sends one file in every way, as what has it open and as what only names it, by descriptor and by number."""
    descriptors = []
    for flags in (os.O_PATH, os.O_RDWR):
        try:
            descriptors += [os.open(path, flags | os.O_NONBLOCK) for _ in range(40)]
        except OSError:
            pass
    where = os.stat(path) if len(descriptors) > 40 else None
    say("open")
    with open(go) as line:
        line.readline()
    held = []
    for descriptor in descriptors:
        for kind in KINDS:
            held.append(send_one(names(name)[0], kind, descriptor, True))
    for descriptor in descriptors:
        for kind in KINDS:
            held.append(send_one(names(name)[0], kind, None, True, named(descriptor, where)))
    say("sent")


mode, *rest = sys.argv[1:]
if mode == "take":
    take([name for one in rest for name in names(one)])
elif mode == "flood":
    flood(*rest)
elif mode == "send":
    send(*rest)
