"""The locked wheels: pins of a platform, hashes at each use, and the files that the image keeps."""

from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools.image import ImageError, wheels
from tools.image.files import Component, File
from tools.image.wheels import SITE_PACKAGES, Pin

METADATA = "Metadata-Version: 2.4\nName: Small.Package\nVersion: 1.0\nLicense-Expression: MIT\n"
NAME = "small_package-1.0-py3-none-any.whl"
CONTENTS = {
    "small/__init__.py": "VALUE = 1\n",
    "small/py.typed": "",
    "small/_speedups.pyx": "source",
    "small/__init__.pyi": "VALUE: int\n",
    "small/tests/test_small.py": "assert True\n",
    "small_package-1.0.dist-info/METADATA": METADATA,
    "small_package-1.0.dist-info/RECORD": "small/__init__.py,sha256=x,1\n",
    "small_package-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\n",
}


def write_wheel(folder: Path, contents: dict[str, str] = CONTENTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(folder / NAME, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return folder / NAME


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """A lock of the wheel."""
    wheel = write_wheel(tmp_path / "original")
    path = tmp_path / "lock.txt"
    path.write_text(
        f"# made by hand\nsmall-package==1.0 ; sys_platform != 'win32' \\\n    --hash=sha256:{wheels.digest(wheel)}\n    # via rallypoint-operator\n"
        "other==2.0 ; platform_machine == 'aarch64' and python_version >= '3.13' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "older==3.0 ; python_version < '3.13' \\\n    --hash=sha256:cc\n"
    )
    return path


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in place of pip: writes the wheel, and records for which architectures."""
    calls: list[str] = []

    def download(pinned: list[Pin], architecture: str, folder: Path) -> None:
        calls.append(architecture)
        write_wheel(folder / "wheels")

    monkeypatch.setattr(wheels, "_pip_download", download)
    return calls


def unpacked(tmp_path: Path, contents: dict[str, str] = CONTENTS) -> Component:
    return wheels.unpack(write_wheel(tmp_path, contents))


def test_markers_are_evaluated_for_the_image(lock: Path) -> None:
    assert [pin.name for pin in wheels.pins(lock, "amd64")] == ["small-package"]
    assert [pin.name for pin in wheels.pins(lock, "arm64")] == ["small-package", "other"]
    assert wheels.pins(lock, "arm64")[1].hashes == {"aa", "bb"}


def test_wheels_are_downloaded_once(lock: Path, pip: list[str], tmp_path: Path) -> None:
    first = wheels.download(lock, "amd64", tmp_path / "cache")

    assert wheels.download(lock, "amd64", tmp_path / "cache") == first
    assert [wheel.name for wheel in first] == [NAME]
    assert pip == ["amd64"]


def test_a_wheel_changed_in_the_cache_is_refused(lock: Path, pip: list[str], tmp_path: Path) -> None:
    (wheel,) = wheels.download(lock, "amd64", tmp_path / "cache")
    write_wheel(wheel.parent, {**CONTENTS, "small/__init__.py": "VALUE = 2\n"})

    with pytest.raises(ImageError, match=r"small_package-1\.0-py3-none-any\.whl does not have a hash"):
        wheels.download(lock, "amd64", tmp_path / "cache")


def test_a_wheel_missing_from_the_cache_is_named(lock: Path, pip: list[str], tmp_path: Path) -> None:
    (wheel,) = wheels.download(lock, "amd64", tmp_path / "cache")
    wheel.unlink()

    with pytest.raises(ImageError, match="lacks small-package"):
        wheels.download(lock, "amd64", tmp_path / "cache")


def test_the_image_keeps_modules_and_metadata(tmp_path: Path) -> None:
    component = unpacked(tmp_path)

    assert (component.name, component.version, component.licenses) == ("small-package", "1.0", ("MIT",))
    assert set(component.files) == {
        f"{SITE_PACKAGES}/{name}"
        for name in ("small/__init__.py", "small/py.typed", "small_package-1.0.dist-info/METADATA")
    }


def test_files_for_other_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="not for site-packages"):
        unpacked(tmp_path, {**CONTENTS, "small_package-1.0.data/data/etc/small.conf": "x"})


def test_a_distribution_without_a_license_is_refused(tmp_path: Path) -> None:
    metadata = METADATA.replace("License-Expression: MIT\n", "")

    with pytest.raises(ImageError, match=r"Small\.Package 1\.0 names no license"):
        unpacked(tmp_path, {**CONTENTS, "small_package-1.0.dist-info/METADATA": metadata})


def test_a_record_lists_what_the_image_has(tmp_path: Path) -> None:
    component = unpacked(tmp_path)
    wheels.record(component)

    entry = component.files[f"{SITE_PACKAGES}/small_package-1.0.dist-info/RECORD"]
    assert isinstance(entry, File)
    lines = entry.content.decode().splitlines()
    assert (
        f"small/__init__.py,sha256={sha256(CONTENTS['small/__init__.py'].encode()).hexdigest()},10" in lines
    )
    assert lines[-1] == "small_package-1.0.dist-info/RECORD,,"
    assert len(lines) == 4
