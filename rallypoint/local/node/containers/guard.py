"""A small process that kills the processes of a node after the node ends, even by ``kill -9`` or a crash.

It runs as a script and reads from standard input which process groups start (``+123``) and end (``-123``). At the end of
the input it kills the remaining groups, then processes that left their group, by the mark in their environment, and
removes the folder of volumes. It imports nothing of the project, so that it starts fast.
"""

import os
import shutil
import signal
import sys
import time

MARK = "RALLYPOINT_NODE"
"""The environment variable with the node of a process."""
CONTAINER = "RALLYPOINT_CONTAINER"
"""The environment variable with the container of a process, for ``sweep``."""
POD = "RALLYPOINT_POD"
"""The environment variable with the UID of a process's pod."""
ROUNDS = 10


def main(node: str, folder: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # The guard outlives the node; it ends after the end of its input.
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line.startswith("+") else groups.discard)(group)
    for group in groups:
        kill_group(group)
    sweep(MARK, node)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def sweep(mark: str, value: str) -> None:
    """Kill the processes with a mark and their children, repeatedly, because a process may fork meanwhile.

    Children can have another environment: MPI's daemons give their ranks the launcher's.
    """
    import psutil

    for _ in range(ROUNDS):
        marked = [process for process in psutil.process_iter() if _has_mark(process, mark, value)]
        if not marked:
            return
        for process in marked:
            try:
                for child in (*process.children(recursive=True), process):
                    child.kill()
            except psutil.Error:
                continue  # The process ended meanwhile; the next round finds the others.
        time.sleep(0.02)


def _has_mark(process, mark: str, value: str) -> bool:  # type: ignore[no-untyped-def]
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.environ().get(mark) == value)
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
