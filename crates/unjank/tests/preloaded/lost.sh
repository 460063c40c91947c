# Prints what a program is told of a disk that has no room for a part of what it wrote: $0 and what follows is put in front of it.
set -e
cd "$DIR"
mkdir memory disk
mount -t tmpfs -o size=400m tmpfs memory
truncate -s 350M memory/image
mkfs.xfs -q -f memory/image
# Room for a part of the file alone: what its program has not asked for yet fails on the way to the disk.
used=$(du -sm memory/image | cut -f1)
mount -o "remount,size=$((used + 14))m" memory
loop=$(losetup --find --show memory/image)
trap 'umount disk; losetup -d "$loop"; umount memory' EXIT
mount "$loop" disk
"$@" python3 -c '
import os
descriptor = os.open("disk/file", os.O_CREAT | os.O_WRONLY)
told = []
def tried(what, *arguments):
    try:
        what(*arguments)
    except OSError:
        told.append(what.__name__)
# What has room is written again at last.
for at in [*range(30), *range(6)]:
    tried(os.pwrite, descriptor, b"x" * (1 << 20), at << 20)
tried(os.fsync, descriptor)
print("told" if told else "lost")
'
