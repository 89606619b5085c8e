"""Finding an interpreter of another version. The versions here do not exist, and nothing is downloaded."""

import hashlib
import re
import sys
import zipfile
from pathlib import Path

import pytest

from tools import python

ROOT = Path(__file__).parents[2]
VERSION = "9.9"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any other interpreter, on which ``bin`` is the only folder on PATH besides the system's."""
    for name in ("PYENV_ROOT", "UV_PYTHON_INSTALL_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr("tools.python.platform.system", lambda: "Linux")
    monkeypatch.setattr("tools.python.platform.machine", lambda: "x86_64")
    return tmp_path


def test_this_interpreter_serves_for_its_own_version() -> None:
    assert python.interpreter("{}.{}".format(*sys.version_info)) == Path(sys.executable)


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param("bin", id="on PATH"),
        pytest.param(".pyenv/versions/9.9.1/bin", id="of pyenv"),
        pytest.param(".local/share/uv/python/cpython-9.9.1-linux-x86_64-gnu/bin", id="of uv"),
    ],
)
def test_an_installed_interpreter_is_found(home: Path, folder: str) -> None:
    path = script(home / folder / "python9.9", "echo 9.9")

    assert python.interpreter(VERSION) == path


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "echo 'pyenv: python9.9: command not found' >&2; exit 127", id="a shim of a version manager"
        ),
        pytest.param("echo 9.8", id="another version"),
    ],
)
def test_an_interpreter_of_another_version_is_skipped(home: Path, text: str) -> None:
    script(home / "bin" / "python9.9", text)
    path = script(home / ".pyenv/versions/9.9.1/bin/python9.9", "echo 9.9")

    assert python.interpreter(VERSION) == path


def test_a_missing_version_is_an_error() -> None:
    with pytest.raises(python.Missing, match=r"there is no Python 9\.9 here: install it"):
        python.interpreter(VERSION)


def test_without_maven_nothing_is_downloaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))
    monkeypatch.setitem(python.BUILDS, VERSION, python.Build("9.9.1", "00"))

    with pytest.raises(python.Missing, match="nor Maven to get one"):
        python.interpreter(VERSION)


@pytest.fixture
def jar(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar, and a Maven that downloads it."""
    jar = home / "build.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(f"{python.FOLDER}python9.9", "#!/bin/sh\necho 9.9\n")
        archive.writestr("META-INF/MANIFEST.MF", "")
    copy = f'cp {jar} "$place/cpython-9.9.1-linux-x86_64.jar"'
    folder = 'place="${3#*=}/org/bytedeco/cpython/9.9.1"'
    script(home / "bin" / "mvn", f'echo "$@" >> {home}/calls\n{folder}\nmkdir -p "$place"\n{copy}')
    digest = hashlib.sha256(jar.read_bytes()).hexdigest()
    monkeypatch.setitem(python.BUILDS, VERSION, python.Build("9.9.1", digest))
    return jar


def test_a_published_build_is_downloaded_once(home: Path, jar: Path) -> None:
    first, second = python.interpreter(VERSION), python.interpreter(VERSION)

    assert first == second == home / ".cache/rallypoint/python/9.9.1/python9.9"
    assert (home / "calls").read_text().count("org.bytedeco:cpython:9.9.1:jar:linux-x86_64") == 1
    assert [path.name for path in (home / ".cache/rallypoint/python").iterdir()] == ["9.9.1"]


def test_a_build_with_another_digest_is_rejected(
    home: Path, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(python.BUILDS, VERSION, python.Build("9.9.1", "00"))

    with pytest.raises(python.Missing, match="is not what it was"):
        python.interpreter(VERSION)
    assert list((home / ".cache/rallypoint/python").iterdir()) == []


def test_the_version_of_the_image_has_a_build() -> None:
    assert python.image_version() in python.BUILDS


def test_the_examples_image_has_the_same_python() -> None:
    text = (ROOT / "examples" / "Dockerfile").read_text()

    assert re.findall(r"^ARG PYTHON=(.*)$", text, re.MULTILINE) == [python.image_version()]
    assert re.findall(r"^FROM python:(.*)$", text, re.MULTILINE) == ["${PYTHON}-slim"]


def test_the_docs_name_the_versions_that_are_tested() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()

    assert f"Python {python.image_version()}, as in the image" in text
