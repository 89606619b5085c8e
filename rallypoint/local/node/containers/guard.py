"""The net under a node that is killed: a small process that ends the node's processes when the node is gone.

It is started as a script, reads from its standard input which process groups live (``+123``) and which have ended
(``-123``), and acts when the input ends, whatever the reason: a clean stop, ``kill -9``, a crash. Processes that left
their group are found by the mark in their environment; the folder of volumes is removed last. It imports nothing of the
project, so that it starts fast.
"""

import os
import shutil
import signal
import sys
import time

MARK = "RALLYPOINT_NODE"
"""The environment variable that says which node a process belongs to."""
CONTAINER = "RALLYPOINT_CONTAINER"
"""The one that says which container."""
ROUNDS = 10


def main(node: str, folder: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # It outlives the node on purpose; the end of the input ends it.
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
    """Kill what carries a mark, and what that has started, until a look finds nothing: a process may fork while we look.

    What was started may have another environment: MPI's daemons give their ranks the launcher's.
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
                continue  # One was faster; the next look finds who is left.
        time.sleep(0.02)


def _has_mark(process, mark: str, value: str) -> bool:  # type: ignore[no-untyped-def]
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.environ().get(mark) == value)
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
