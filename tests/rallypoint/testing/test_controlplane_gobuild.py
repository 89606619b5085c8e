"""Compiling the control plane: what is read from Kubernetes' go.mod, and the errors when Go fails.

The compiler here is a script; the real one is run by ``python -m rallypoint.testing.controlplane build``.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import Unavailable
from rallypoint.testing.controlplane.gobuild import (
    build,
    go_version,
    published_replacements,
    unreleased_modules,
)
from rallypoint.testing.controlplane.programs import KUBERNETES, PROGRAMS

GO_MOD = """
module k8s.io/kubernetes

go 1.26.0

require (
	github.com/stretchr/testify v1.11.1
	k8s.io/api v0.0.0
	k8s.io/kube-openapi v0.0.0-20260127142750-a19766b6e2d4
	k8s.io/klog/v2 v2.140.0
	k8s.io/cri-client v0.0.0 // indirect
	sigs.k8s.io/yaml v1.6.0
)

require k8s.io/api v0.0.0

replace k8s.io/mount-utils => ./staging/src/k8s.io/mount-utils

replace (
	k8s.io/metrics => k8s.io/metrics v0.32.7 // as Kubernetes
)
"""

FAKE_GO = """#!/bin/sh
echo "$GOFLAGS $GOTOOLCHAIN $*" >> {log}
case "$1 $2" in
"version ") echo "go version go{version} linux/amd64" ;;
"mod download") echo '{{"GoMod": "{go_mod}", "Dir": "{directory}"}}' ;;
"build "*)
    cp go.sum {directory}/used.sum
    if [ -n "{failure}" ]; then echo "{failure}" >&2; exit 2; fi
    while [ $# -gt 1 ]; do [ "$1" = -o ] && echo compiled > "$2" && chmod +x "$2"; shift; done ;;
esac
"""


class Go:
    """A double of the compiler on PATH that records its calls."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._log = directory / "log"
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    def install(self, *, version: str = "1.26.3", failure: str = "") -> None:
        go_mod = self._directory / "go.mod"
        go_mod.write_text(GO_MOD)
        script = self._directory / "go"
        (self._directory / "go.sum").write_text("its sums\n")
        script.write_text(
            FAKE_GO.format(
                log=self._log, version=version, go_mod=go_mod, directory=self._directory, failure=failure
            )
        )
        script.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    directory = tmp_path / "bin"
    directory.mkdir()
    return Go(directory, monkeypatch)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    directory = tmp_path / "cache"
    directory.mkdir()
    return directory


@pytest.fixture
def said() -> list[str]:
    return []


def test_only_modules_without_any_version_are_replaced() -> None:
    assert unreleased_modules(GO_MOD) == ["k8s.io/api", "k8s.io/cri-client"]


def test_replacements_by_published_versions_are_taken_over_and_those_by_folders_are_not() -> None:
    assert published_replacements(GO_MOD) == {"k8s.io/metrics": "k8s.io/metrics@v0.32.7"}


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        pytest.param("go version go1.26.8 linux/amd64", (1, 26), id="a release"),
        pytest.param("go version go1.27rc1 darwin/arm64", (1, 27), id="a candidate"),
        pytest.param("go version devel +abc linux/amd64", None, id="no version at all"),
    ],
)
def test_go_version(printed: str, version: tuple[int, int] | None) -> None:
    assert go_version(printed) == version


def test_programs_of_a_module_are_compiled_in_a_single_workspace(go: Go, into: Path, said: list[str]) -> None:
    go.install()
    names = ["kube-apiserver", "etcd", "kube-controller-manager"]

    build([PROGRAMS[name] for name in names], into, say=said.append)

    assert sorted(path.name for path in into.iterdir()) == sorted(names)
    edits = [line for line in go.calls if " mod edit " in line and "kubernetes" in line]
    assert len(edits) == 1
    assert f"-require=k8s.io/kubernetes@v{KUBERNETES}" in edits[0]
    assert f"-replace=k8s.io/api=k8s.io/api@v0.{KUBERNETES.partition('.')[2]}" in edits[0]
    assert all(line.startswith("-mod=mod auto ") for line in go.calls[1:])
    assert f"  compile kube-apiserver v{KUBERNETES} …" in said


def test_dependencies_are_verified_by_the_go_sum_of_the_module(go: Go, into: Path, said: list[str]) -> None:
    go.install()

    build([PROGRAMS["etcd"]], into, say=said.append)

    assert (into.parent / "bin" / "used.sum").read_text() == "its sums\n"


def test_replacements_of_a_program_are_applied(go: Go, into: Path, said: list[str]) -> None:
    go.install()

    build([replace(PROGRAMS["etcd"], replacements=("a.io/b=a.io/b@v1.0.0",))], into, say=said.append)

    (edit,) = [line for line in go.calls if " mod edit " in line]
    assert edit.endswith(" -replace=a.io/b=a.io/b@v1.0.0")


def test_remains_of_a_killed_build_are_removed(go: Go, into: Path, said: list[str]) -> None:
    go.install()
    (into / ".build-killed").mkdir()

    build([PROGRAMS["etcd"]], into, say=said.append)

    assert [path.name for path in into.iterdir()] == ["etcd"]


def test_a_failure_ends_with_what_go_printed_and_leaves_nothing(go: Go, into: Path, said: list[str]) -> None:
    go.install(failure="undefined: everything")

    with pytest.raises(Unavailable, match="undefined: everything"):
        build([PROGRAMS["etcd"]], into, say=said.append)

    assert list(into.iterdir()) == []


def test_without_go_the_message_says_how_to_get_it(
    into: Path, said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        Unavailable, match=r"etcd would have to be compiled, and there is no Go\. Install Go 1\.21"
    ):
        build([PROGRAMS["etcd"]], into, say=said.append)


def test_a_go_that_cannot_download_a_newer_toolchain_is_too_old(go: Go, into: Path, said: list[str]) -> None:
    go.install(version="1.19.8")

    with pytest.raises(Unavailable, match=r"is too old \(go version go1\.19\.8 linux/amd64\)"):
        build([PROGRAMS["etcd"]], into, say=said.append)
