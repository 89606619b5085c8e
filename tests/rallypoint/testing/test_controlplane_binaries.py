"""The order in which folders are searched for a program of the control plane, and the error if none has it."""

import fcntl
import threading
from pathlib import Path

import pytest

from rallypoint.testing.controlplane import Unavailable, binaries, download, gobuild
from rallypoint.testing.controlplane.programs import KUBERNETES, OLDEST_KUBERNETES, SERVERS, Program


def program(directory: Path, name: str, *, mode: int = 0o755) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text("")
    path.chmod(mode)
    return path


@pytest.fixture
def assets(tmp_path: Path) -> Path:
    return tmp_path / "assets"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "rallypoint" / "controlplane" / f"v{KUBERNETES}"


@pytest.fixture
def environ(tmp_path: Path, assets: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "KUBEBUILDER_ASSETS": str(assets)}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def obtained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the download by one that has kube-apiserver and the compiler by one that has everything; return their calls."""
    calls: list[str] = []

    def fetch(names: list[str], into: Path, *, version: str, say: binaries.Say) -> None:
        calls.append(f"download {' '.join(names)}{into.name.removeprefix(f'v{version}')}")
        if "kube-apiserver" in names:
            program(into, "kube-apiserver")

    def build(programs: list[Program], into: Path, *, say: binaries.Say) -> None:
        for wanted in programs:
            calls.append(f"compile {wanted.name}")
            program(into, wanted.name)

    monkeypatch.setattr(download, "fetch", fetch)
    monkeypatch.setattr(gobuild, "build", build)
    return calls


def test_the_environment_overrides_the_cache(environ: dict[str, str], assets: Path, cache: Path) -> None:
    program(cache, "etcd")
    named = program(assets, "etcd")

    assert binaries.find("etcd", environ) == named


def test_a_program_missing_in_the_environment_is_found_in_the_cache(
    environ: dict[str, str], assets: Path, cache: Path
) -> None:
    program(assets, "etcd")
    cached = program(cache, "kwok")

    assert binaries.find("kwok", environ) == cached


def test_a_file_that_is_not_executable_is_ignored(environ: dict[str, str], cache: Path) -> None:
    program(cache, "etcd", mode=0o644)

    assert binaries.find("etcd", environ) is None


def test_the_default_cache_is_in_the_home_folder() -> None:
    expected = Path.home() / ".cache" / "rallypoint" / "controlplane" / f"v{KUBERNETES}"

    assert binaries.cache_directory({}) == expected


def test_an_existing_program_is_not_obtained(
    environ: dict[str, str], cache: Path, obtained: list[str], said: list[str]
) -> None:
    etcd = program(cache, "etcd")

    assert binaries.ensure(["etcd"], environ=environ, say=said.append) == {"etcd": etcd}
    assert obtained == []
    assert said == []


def test_a_download_is_tried_before_compiling_and_only_for_what_is_missing(
    environ: dict[str, str], cache: Path, obtained: list[str], said: list[str]
) -> None:
    program(cache, "etcd")

    found = binaries.ensure(["etcd", "kube-apiserver", "kwok"], environ=environ, say=said.append)

    assert obtained == ["download kube-apiserver kwok", "compile kwok"]
    assert found == {name: cache / name for name in ("etcd", "kube-apiserver", "kwok")}


def test_the_oldest_servers_have_a_folder_of_their_own(
    environ: dict[str, str], assets: Path, cache: Path, obtained: list[str], said: list[str]
) -> None:
    """Other folders with the programs do not count; programs that were compiled into their own folder are not compiled again."""
    for folder_of_programs in (assets, cache):
        program(folder_of_programs, "kube-scheduler")

    folder = binaries.servers_of(OLDEST_KUBERNETES, environ=environ, say=said.append)
    again = binaries.servers_of(OLDEST_KUBERNETES, environ=environ, say=said.append)

    assert folder == again == cache.with_name(f"v{OLDEST_KUBERNETES}")
    assert obtained == [
        f"download {' '.join(SERVERS)}",
        "compile kube-controller-manager",
        "compile kube-scheduler",
    ]


def test_an_unknown_program_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(Unavailable, match="no such program: kubeadm; there are etcd"):
        binaries.ensure(["etcd", "kubeadm"], environ=environ)


def test_two_processes_do_not_fill_the_cache_at_once(
    environ: dict[str, str], cache: Path, obtained: list[str], said: list[str]
) -> None:
    """The second waits for the lock and then finds the programs of the first."""
    waiting = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        waiting.set()

    cache.mkdir(parents=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(
            target=binaries.ensure, args=(["kwok"],), kwargs={"environ": environ, "say": say}
        )
        second.start()
        assert waiting.wait(10)
        program(cache, "kwok")
    second.join(10)

    assert not second.is_alive()
    assert said[0] == f"Another process fills {cache}; waiting for it"
    assert obtained == []
