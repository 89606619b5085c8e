"""The system calls for namespaces and mounts that Python 3.11 does not have. Linux only, standard library only."""

import ctypes
import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager

NEW_MOUNT = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NETWORK = 0x40000000
NAMES = {NEW_MOUNT: "mnt", NEW_HOST_NAME: "uts", NEW_IPC: "ipc", NEW_NETWORK: "net"}
"""Names in /proc/self/ns of the namespaces that a process can enter and leave."""

READ_ONLY = 1
NO_SETUID = 2
NO_DEVICES = 4
NO_PROGRAMS = 8
REMOUNT = 32
BIND = 4096
RECURSIVE = 16384
PRIVATE = 1 << 18
_STATVFS_TO_MOUNT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flags of statvfs → flags of mount: a remount in a user namespace must not clear them."""
_DETACH = 2
_PARENT_DEATH_SIGNAL = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Move this process to new namespaces.

    Raises:
        OSError: not permitted, or too many. All functions of this module raise it.
    """
    _call("unshare", kinds)


def enter(namespace: int) -> None:
    """Enter the namespace of a descriptor; a mount namespace sets root and working directory, too."""
    _call("setns", namespace, 0)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    texts = (text.encode() for text in (source, target, kind))
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode(), about=f"mount {target}")


def make_read_only(target: str) -> None:
    """Remount the bind mount at ``target`` read-only."""
    current = os.statvfs(target).f_flag
    flags = sum(flag for statvfs_flag, flag in _STATVFS_TO_MOUNT_FLAGS.items() if current & statvfs_flag)
    mount("", target, flags=REMOUNT | BIND | READ_ONLY | flags)


def make_root(folder: str) -> None:
    """Make ``folder``, a mount point, the root of this mount namespace and detach the old root."""
    change_root(folder)
    detach_old_root()


def change_root(folder: str) -> None:
    """Make ``folder``, a mount point, the root. The old root stays mounted over it until ``detach_old_root``.

    Source: pivot_root(2), "pivot_root(".", ".")".
    """
    os.chdir(folder)
    _call("pivot_root", b".", b".")


def detach_old_root() -> None:
    """Detach the old root. Files opened in it can be mounted only before this."""
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def die_with_parent() -> None:
    _call("prctl", _PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


@contextmanager
def temporary_namespaces(kinds: Sequence[int], start: Sequence[int] = ()) -> Generator[None]:
    """Run the body in new namespaces of these kinds, derived from those of ``start`` (descriptors)."""
    originals = [current_namespace(kind) for kind in kinds]
    try:
        for namespace in start:
            enter(namespace)
        unshare(sum(kinds))
        yield
    finally:
        for original in originals:
            enter(original)
            os.close(original)


def current_namespace(kind: int) -> int:
    """Open the current namespace; the descriptor keeps it alive."""
    return os.open(f"/proc/self/ns/{NAMES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: object, about: str = "") -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about or name)


def error_text(error: Exception) -> str:
    """Return the message of an error for users."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or repr(error)
