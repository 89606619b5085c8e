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
    sweep(node)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def sweep(node: str) -> None:
    """Kill what carries the node's mark, until a look finds nothing: a process may fork while we look."""
    import psutil

    for _ in range(ROUNDS):
        found = [process for process in psutil.process_iter() if _belongs(process, node)]
        if not found:
            return
        for process in found:
            try:
                process.kill()
            except psutil.Error:
                continue
        time.sleep(0.02)


def _belongs(process, node: str) -> bool:  # type: ignore[no-untyped-def]
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == node)
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
