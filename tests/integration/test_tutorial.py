"""The commands of the tutorial, in order and terminal by terminal, print what the page shows."""

import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rallypoint.testing.controlplane import binaries
from tests.support.pages import blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-steps.md"
INTERRUPT = "^C"
ANYTHING = "…"


@dataclass(frozen=True)
class Typed:
    """One command of the page, and the lines that it shows there."""

    terminal: int
    command: str
    shown: list[str] = field(default_factory=list[str])


def typed(page: Path) -> Iterator[Typed]:
    """What stands in the blocks of consoles."""
    for block in blocks(page, "console"):
        found: list[Typed] = []
        for line in block.text.splitlines():
            if start := _starts(line):
                terminal, command = start
                found.append(Typed(terminal, command))
            else:
                found[-1].shown.append(line)
        yield from found


def _starts(line: str) -> tuple[int, str] | None:
    found = re.fullmatch(r"(?:\((\d)\) )?(?:\$ (.*)|(\^C))", line)
    return (int(found[1] or 1), found[2] or found[3]) if found else None


def is_shown(out: str, shown: list[str]) -> bool:
    """Whether the whole output is what the page shows; ``…`` alone is any number of lines, inside a line any text."""
    pattern = "\n".join(shown).replace("[", "[[]").replace("*", "[*]").replace("?", "[?]")
    return fnmatch.fnmatchcase(out.rstrip("\n"), pattern.replace(ANYTHING, "*"))


class Shell:
    """The first terminal: it keeps its folder, its variables and the last status."""

    END = "--- end of the output ---"

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # In braces, so that it reads nothing of what is typed after it, and changes of folder and status stay.
        script = f"{{ {command}\n}} </dev/null; status=$?; echo; echo '{self.END}'; (exit $status)\n"
        self.process.stdin.write(script)
        self.process.stdin.flush()
        lines = list(iter(self.process.stdout.readline, f"{self.END}\n"))
        # `kubectl wait` sometimes logs that its own watch ended when it stops.
        return "".join(line for line in lines if not re.match(r"[IW]\d{4} .* reflector\.go:", line))

    def close(self) -> None:
        self.process.communicate()


class Foreground:
    """The second terminal: one command at a time, ended by an interruption."""

    def __init__(self, folder: Path, command: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
        )

    def until(self, last: str) -> str:
        """What it has shown up to a line like the last one of the page."""
        assert self.process.stdout is not None
        lines: list[str] = []
        for line in self.process.stdout:
            lines.append(line)
            if is_shown(line, [last]):
                break
        return "".join(lines)

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        return self.process.returncode


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    kubectl = binaries.ensure(["kubectl"])["kubectl"]
    path = os.pathsep.join((str(Path(sys.executable).parent), str(Path(kubectl).parent), os.environ["PATH"]))
    env = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    env |= {"PATH": path, "HOME": str(tmp_path)}
    shell, second = Shell(tmp_path, env), None
    wrong: list[str] = []
    try:
        for step in typed(PAGE):
            if step.command == INTERRUPT:
                assert second is not None
                assert second.interrupt() == 0
            elif step.terminal == 2:
                second = Foreground(Path(shell.run("pwd").strip()), step.command, env)
                out = second.until(step.shown[-1])
                wrong += [] if is_shown(out, step.shown) else [f"{step}\n{out}"]
            else:
                out = shell.run(step.command)
                wrong += [] if is_shown(out, step.shown) else [f"{step}\n{out}"]
    finally:
        shell.close()
        if second is not None and second.process.returncode is None:
            second.interrupt()

    assert not wrong, "\n\n".join(wrong)
