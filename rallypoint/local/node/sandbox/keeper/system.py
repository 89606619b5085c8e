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
"""Of the files in /proc/self/ns; those namespaces that a process can go to and come back from."""

READ_ONLY = 1
NO_SETUID = 2
NO_DEVICES = 4
NO_PROGRAMS = 8
REMOUNT = 32
BIND = 4096
RECURSIVE = 16384
PRIVATE = 1 << 18
_KEPT = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flags of statvfs → flags of mount: a remount in a user namespace must not take them off."""
_DETACH = 2
_PARENT_DEATH_SIGNAL = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Leave namespaces for new ones.

    Raises:
        OSError: it is not allowed, or there are too many. The same goes for everything in here.
    """
    _call("unshare", kinds)


def enter(namespace: int) -> None:
    """Go into the namespace of a descriptor; into a mount namespace also with root and working directory."""
    _call("setns", namespace, 0)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    texts = (text.encode() for text in (source, target, kind))
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode(), about=f"mount {target}")


def make_read_only(target: str) -> None:
    """Refuse writes to what has just been bound to ``target``."""
    there = os.statvfs(target).f_flag
    kept = sum(flag for told, flag in _KEPT.items() if there & told)
    mount("", target, flags=REMOUNT | BIND | READ_ONLY | kept)


def make_root(folder: str) -> None:
    """Make ``folder``, a mount, the root of this mount namespace; what was the root is let go."""
    change_root(folder)
    let_go()


def change_root(folder: str) -> None:
    """Make ``folder``, a mount, the root, and stay in it; what was the root lies over it until it is let go.

    Source: pivot_root(2), "pivot_root(".", ".")".
    """
    os.chdir(folder)
    _call("pivot_root", b".", b".")


def let_go() -> None:
    """Let go of what was the root; what has been opened of it can be mounted until then."""
    _call("umount2", b".", _DETACH)
    os.chdir("/")


def die_with_parent() -> None:
    _call("prctl", _PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


@contextmanager
def away(kinds: Sequence[int], start: Sequence[int] = ()) -> Generator[None]:
    """Be in new namespaces of these kinds for a while, made from those of ``start`` (descriptors)."""
    homes = [here(kind) for kind in kinds]
    try:
        for namespace in start:
            enter(namespace)
        unshare(sum(kinds))
        yield
    finally:
        for home in homes:
            enter(home)
            os.close(home)


def here(kind: int) -> int:
    """A descriptor of the namespace that this process is in; it keeps it alive."""
    return os.open(f"/proc/self/ns/{NAMES[kind]}", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *arguments: object, about: str = "") -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), about or name)


def spell(error: Exception) -> str:
    """What went wrong, for people."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error) or repr(error)
