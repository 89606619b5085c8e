"""Compiles programs of the control plane with Go, from their published modules.

Kubernetes cannot be had with ``go install``: its go.mod refers to the libraries it is released with as v0.0.0. A
throwaway module that requires Kubernetes and maps those to their published versions builds what its own tree builds.
The same holds for modules whose go.mod replaces others by published versions, as scheduler-plugins does.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from rallypoint.testing.controlplane.programs import Program, Unavailable

Say = Callable[[str], None]

OLDEST_GO = (1, 21)
"""The first Go version that fetches the newer toolchain of a module."""

_PROGRESS_EVERY_SECONDS = 30.0
_NO_DEBUG_INFORMATION = "-gcflags=all=-dwarf=false"
"""The linker would drop it; without it, compilation takes a ninth less CPU."""
_SCRATCH = ".build-"
_REPLACED = re.compile(
    r"^\s*(?:replace\s+)?(\S+)(?:\s+v\S+)?\s+=>\s+(\S+)\s+(v\S+)\s*(?://.*)?$", re.MULTILINE
)
_UNRELEASED = re.compile(r"^\s*(?:require\s+)?(k8s\.io/[a-z0-9-]+)\s+v0\.0\.0\s*(?://.*)?$", re.MULTILINE)
_HOW_TO_GET_GO = (
    f"Install Go {OLDEST_GO[0]}.{OLDEST_GO[1]} or newer (https://go.dev/dl, or your system's package `golang`), "
    "or set KUBEBUILDER_ASSETS to a directory with these programs."
)


def unreleased_modules(go_mod: str) -> list[str]:
    """Return the modules that a go.mod of Kubernetes requires at v0.0.0, once each."""
    return sorted(set(_UNRELEASED.findall(go_mod)))


def published_replacements(go_mod: str) -> dict[str, str]:
    """Return the published versions that a module uses instead of required ones, as ``path@version`` by path.

    Go applies the replacements of the main module alone, which here is the throwaway one.
    """
    return {old: f"{new}@{version}" for old, new, version in _REPLACED.findall(go_mod)}


def staging(version: str) -> str:
    """Return the version of the k8s.io libraries of a Kubernetes release."""
    return version.replace("v1.", "v0.", 1)


def go_version(output: str) -> tuple[int, int] | None:
    """Return major and minor version from the output of ``go version``."""
    match = re.search(r"\bgo(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else None


def build(programs: Sequence[Program], into: Path, *, say: Say) -> None:
    """Compiles each program and moves it into the folder when it is whole; nobody else may build there meanwhile.

    Raises:
        Unavailable: Go is missing, too old, or failed; the message ends with what it printed.
    """
    go = _find_go([program.name for program in programs])
    for left_over in into.glob(
        f"{_SCRATCH}*"
    ):  # of a build that was killed; the caller sees to it that none runs
        shutil.rmtree(left_over, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=into, ignore_cleanup_errors=True) as scratch:
        for module, members in groupby(sorted(programs, key=lambda p: p.module), key=lambda p: p.module):
            workspace = _Workspace(go, Path(scratch) / module.replace("/", "_"), say)
            group = list(members)
            workspace.require(module, group[0].version, group[0].replacements)
            for program in group:
                workspace.compile(program, into)


def module_directory(module: str, version: str) -> Path:
    """Return the read-only folder with the sources of a published module; fetch it if necessary."""
    go = _find_go([module])
    printed = subprocess.run(
        [go, "mod", "download", "-json", f"{module}@{version}"], capture_output=True, text=True, check=False
    )
    if printed.returncode:
        raise Unavailable(f"{module} {version} cannot be fetched: {printed.stdout}{printed.stderr}")
    return Path(json.loads(printed.stdout)["Dir"])


def _find_go(names: Sequence[str]) -> str:
    go = shutil.which("go")
    missing = f"{', '.join(names)} would have to be compiled"
    if go is None:
        raise Unavailable(f"{missing}, and there is no Go. {_HOW_TO_GET_GO}")
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout
    version = go_version(said)
    if version is None or version < OLDEST_GO:
        raise Unavailable(
            f"{missing}, and {go} is too old ({said.strip() or 'no version'}). {_HOW_TO_GET_GO}"
        )
    return go


class _Workspace:
    """A throwaway module with one requirement."""

    def __init__(self, go: str, directory: Path, say: Say) -> None:
        self._go = go
        self._directory = directory
        self._say = say
        # The user's own proxy and checksum settings stay; the toolchain may be newer than the installed one.
        self._environ = os.environ | {
            "CGO_ENABLED": "0",
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "auto",
            "GOWORK": "off",
        }
        directory.mkdir()

    def require(self, module: str, version: str, more: Sequence[str]) -> None:
        self._run("mod", "init", "controlplane")
        fetched = self._run_step(
            f"fetch {module} {version}", "mod", "download", "-json", f"{module}@{version}"
        )
        module_files = json.loads(fetched)
        go_mod = Path(module_files["GoMod"]).read_text(encoding="utf-8")
        sums = Path(module_files["Dir"]) / "go.sum"
        if sums.exists():  # what the module itself vouches for; a checksum database may not know all of it
            shutil.copyfile(sums, self._directory / "go.sum")
        replacements = {name: f"{name}@{staging(version)}" for name in unreleased_modules(go_mod)}
        replacements |= published_replacements(go_mod)
        replaced = [f"-replace={old}={new}" for old, new in replacements.items()]
        replaced += [f"-replace={replacement}" for replacement in more]
        self._run("mod", "edit", f"-require={module}@{version}", *replaced)

    def compile(self, program: Program, into: Path) -> None:
        """Compile to a temporary file, then rename it: an interrupted build leaves no partial program."""
        output = self._directory / f"{program.name}.out"
        if program.source:
            (self._directory / program.name).mkdir()
            shutil.copy(program.source, self._directory / program.name)
        options = ["-trimpath", _NO_DEBUG_INFORMATION, "-ldflags", program.ldflags, "-tags", program.tags]
        arguments = ["build", *options, "-o", str(output), program.package]
        self._run_step(f"compile {program.name} {program.version}", *arguments)
        output.rename(into / program.name)

    def _run_step(self, step: str, *arguments: str) -> str:
        """Run a step that takes long, and report its progress."""
        started = time.monotonic()
        self._say(f"  {step} …")
        printed = self._run(
            *arguments, still=lambda: self._say(f"  {step} … {time.monotonic() - started:.0f} s")
        )
        self._say(f"  {step}: {time.monotonic() - started:.0f} s")
        return printed

    def _run(self, *arguments: str, still: Callable[[], None] = lambda: None) -> str:
        """Run go and return its output; call ``still`` every half minute."""
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
            subprocess.Popen(
                [self._go, *arguments], cwd=self._directory, env=self._environ, stdout=out, stderr=err
            ) as process,
        ):
            code = _wait(process, still)
            out.seek(0)
            err.seek(0)
            if code:
                tail = "\n".join(err.read().splitlines()[-20:])
                raise Unavailable(f"`go {' '.join(arguments)}` ended with {code}:\n{tail}")
            return out.read()


def _wait(process: subprocess.Popen[bytes], still: Callable[[], None]) -> int:
    try:
        while True:
            try:
                return process.wait(_PROGRESS_EVERY_SECONDS)
            except subprocess.TimeoutExpired:
                still()
    except BaseException:
        process.kill()
        raise
