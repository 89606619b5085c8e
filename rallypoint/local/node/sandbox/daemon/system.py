"""The system calls for namespaces and mounts that Python 3.11 does not have. Linux only, standard library only."""

import ctypes
import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMES = {CLONE_NEWNS: "mnt", CLONE_NEWUTS: "uts", CLONE_NEWIPC: "ipc", CLONE_NEWNET: "net"}
"""Names in /proc/self/ns of the namespaces that a process can enter and leave."""

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
_STATVFS_TO_MOUNT_FLAGS = {2: 2, 4: 4, 8: 8, 1024: 1024, 2048: 2048, 4096: 1 << 21}
"""Flags of statvfs → flags of mount: a remount in a user namespace must not clear them."""
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    """Move this process to new namespaces.

    Raises:
        OSError: not permitted, or too many. All functions of this module raise it.
    """
    _call("unshare", kinds)


def setns(namespace: int) -> None:
    """Enter the namespace of a descriptor; a mount namespace sets root and working directory, too."""
    _call("setns", namespace, 0)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    texts = (text.encode() for text in (source, target, kind))
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode(), about=f"mount {target}")


def make_read_only(target: str) -> None:
    """Remount the bind mount at ``target`` read-only."""
    current = os.statvfs(target).f_flag
    flags = sum(flag for statvfs_flag, flag in _STATVFS_TO_MOUNT_FLAGS.items() if current & statvfs_flag)
    mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def make_root(folder: str) -> None:
    """Make ``folder``, a mount point, the root of this mount namespace and detach the old root."""
    pivot_root(folder)
    detach_old_root()


def pivot_root(folder: str) -> None:
    """Make ``folder``, a mount point, the root. The old root stays mounted over it until ``detach_old_root``.

    Source: pivot_root(2), "pivot_root(".", ".")".
    """
    os.chdir(folder)
    _call("pivot_root", b".", b".")


def detach_old_root() -> None:
    """Detach the old root. Files opened in it can be mounted only before this."""
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def die_with_parent() -> None:
    _call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@contextmanager
def temporary_namespaces(kinds: Sequence[int], start: Sequence[int] = ()) -> Generator[None]:
    """Run the body in new namespaces of these kinds, derived from those of ``start`` (descriptors)."""
    originals = [current_namespace(kind) for kind in kinds]
    try:
        for namespace in start:
            setns(namespace)
        unshare(sum(kinds))
        yield
    finally:
        for original in originals:
            setns(original)
            os.close(original)


@contextmanager
def entered_namespace(kind: int, namespace: int) -> Generator[None]:
    """Run the body in a namespace (a descriptor)."""
    original = current_namespace(kind)
    try:
        setns(namespace)
        yield
    finally:
        setns(original)
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
