"""The longest callbacks of an event loop, by coroutine or function."""

import asyncio
import subprocess
import sys
from pathlib import Path

from bench.controlplane.callbacks import MAX_CALLBACKS, LongestCallbacks, callback_name, launcher, read

WORK = """
import asyncio, gc
from bench.controlplane import callbacks

longest = callbacks.LongestCallbacks()
callbacks.time_callbacks(longest)

async def short(): await asyncio.sleep(0)
async def long(): sum(range(3_000_000)); await asyncio.sleep(0)
async def main():
    await asyncio.gather(short(), long(), short())
    gc.collect(1)

gc.disable()
gc.collect(0)
asyncio.run(main())
print(*longest.table(), longest.calls, sep="|")
"""


def test_the_longest_callback_comes_first() -> None:
    """In a process of its own: the patched loop cannot be restored."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)

    names = done.stdout.split("|")
    assert names[0] == "long"
    assert {"short", "main", "garbage of generation 1"} < set(names)
    assert "garbage of generation 0" not in names  # one ran, but not during a callback
    assert int(names[-1]) >= 6


def test_only_the_longest_call_of_each_callback_counts() -> None:
    longest = LongestCallbacks()
    for index in range(MAX_CALLBACKS + 5):
        longest.record(f"callback-{index}", float(index))
        longest.record(f"callback-{index}", index / 2)

    assert next(iter(longest.table().items())) == (f"callback-{MAX_CALLBACKS + 4}", MAX_CALLBACKS + 4.0)
    assert len(longest.table()) == MAX_CALLBACKS
    assert longest.calls == 2 * (MAX_CALLBACKS + 5)


async def test_a_callback_without_a_task_has_the_name_of_its_function() -> None:
    def called() -> None: ...

    handle = asyncio.get_running_loop().call_soon(called)

    assert callback_name(handle).endswith("called")


def test_the_launcher_is_the_module_and_its_file(tmp_path: Path) -> None:
    module, file = launcher(tmp_path / "callbacks.json")
    (tmp_path / "callbacks.json").write_text('{"calls": 3, "cpu_ms": {}}')

    assert module == "bench.controlplane.callbacks"
    assert read(Path(file)) == {"calls": 3, "cpu_ms": {}}


def test_a_controller_that_does_not_start_still_writes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "callbacks.json"
    command = [sys.executable, "-m", *launcher(file), str(tmp_path), "--no-such-flag"]

    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
    assert read(file)["cpu_ms"] == {}
