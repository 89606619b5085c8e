"""The composition of the image: it agrees with the Dockerfile, and names what it is built from."""

import gzip
import importlib.util
import re
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from controller.telemetry.build import COMMIT_VARIABLE
from tools.image import ImageError, build, elf, oci, wheels
from tools.image.__main__ import main
from tools.image.build import Sources
from tools.image.files import File, Tree
from tools.image.oci import Layer

ROOT = Path(__file__).parents[3]
METADATA = (
    "Metadata-Version: 2.4\nName: rallypoint-operator\nVersion: 1.0\nSummary: An operator.\nLicense-Expression: Apache-2.0\n"
    "Project-URL: Repository, https://forge.example/rallypoint\n"
)


def instructions(name: str) -> list[str]:
    """The arguments of an instruction in the Dockerfile's last stage."""
    last = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    return re.findall(rf"^{name} (.*)$", last, re.MULTILINE)


def write_wheel(folder: Path, *, commit: str = "abc") -> Path:
    path = folder / "rallypoint_operator-1.0-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        archive.writestr("rallypoint_operator-1.0.dist-info/METADATA", METADATA)
        if commit:
            archive.writestr("rallypoint_operator-1.0.dist-info/extra_metadata/COMMIT", f"{commit}\n")
    return path


def sources(epoch: int = 0) -> Sources:
    return Sources(Path("lock.txt"), Path("operator.whl"), Parser().parsestr(METADATA), "abc", epoch)


def test_user_entry_point_and_ports_are_those_of_the_dockerfile() -> None:
    assert instructions("USER") == [build.USER]
    assert instructions("ENTRYPOINT") == [str(list(build.ENTRYPOINT)).replace("'", '"')]
    assert instructions("EXPOSE") == [" ".join(map(str, build.PORTS))]


def test_the_environment_is_that_of_the_dockerfile() -> None:
    declared = dict(variable.split("=", 1) for line in instructions("ENV") for variable in line.split())

    assert declared.keys() == {*build.ENVIRONMENT, COMMIT_VARIABLE}
    assert build.ENVIRONMENT["PATH"].startswith(declared.pop("PATH").replace("$PATH", ""))
    assert {name: build.ENVIRONMENT[name] for name in declared if name in build.ENVIRONMENT} == {
        name: value for name, value in declared.items() if name != COMMIT_VARIABLE
    }


def test_the_packages_lie_where_the_dockerfile_puts_them() -> None:
    assert f"COPY --from=build /{wheels.PREFIX} /{wheels.PREFIX}" in (ROOT / "Dockerfile").read_text()


def test_annotations_name_version_commit_source_license_and_time() -> None:
    assert sources(1_700_000_000).annotations() == {
        "org.opencontainers.image.created": "2023-11-14T22:13:20Z",
        "org.opencontainers.image.description": "An operator.",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": "abc",
        "org.opencontainers.image.source": "https://forge.example/rallypoint",
        "org.opencontainers.image.title": "rallypoint",
        "org.opencontainers.image.version": "1.0",
    }


def test_sources_have_the_version_and_the_commit_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "17")

    found = build.sources(tmp_path / "lock.txt", "1.0", write_wheel(tmp_path), tmp_path)

    assert (found.version, found.commit, found.epoch) == ("1.0", "abc", 17)


def test_another_version_than_wanted_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = write_wheel(tmp_path)

    assert main(["build", "--output", str(tmp_path / "out"), "--wheel", str(wheel), "--version", "1.1"]) == 1
    assert (
        "--version 1.1: rallypoint_operator-1.0-py3-none-any.whl has version 1.0" in capsys.readouterr().err
    )


def test_a_wheel_without_a_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="names no commit"):
        build.sources(tmp_path / "lock.txt", "", write_wheel(tmp_path, commit=""), tmp_path)


def test_a_time_that_is_no_number_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")

    with pytest.raises(ImageError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        build.sources(tmp_path / "lock.txt", "", write_wheel(tmp_path), tmp_path)


def write_archive(path: Path, content: bytes, architecture: str) -> Path:
    """An archive with one compiled module, and the names of the libraries that it needs, without libz."""
    libraries: Tree = {f"usr/lib/{name}": File(b"") for name in elf.needed(content) if name != "libz.so.6"}
    layer = Layer.of(
        "base", {"opt/module.so": File(content), **libraries}, lambda tar: gzip.compress(tar, mtime=0)
    )
    oci.write(oci.assemble(architecture, [layer], {}, {}, sources().created), path, "rallypoint")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="compiled modules are ELF files on Linux")
def test_a_module_for_another_processor_is_reported(tmp_path: Path) -> None:
    content = compiled_module()
    other = "arm64" if elf.architecture(content) == "amd64" else "amd64"

    with pytest.raises(ImageError, match=rf"/opt/module\.so is for {elf.architecture(content)}"):
        build.check(write_archive(tmp_path / "image.tar", content, other), tmp_path / "sbom.json")


@pytest.mark.skipif(sys.platform != "linux", reason="compiled modules are ELF files on Linux")
def test_a_library_that_is_missing_is_reported(tmp_path: Path) -> None:
    content = compiled_module().replace(b"libc.so.6\0", b"libz.so.6\0")

    with pytest.raises(ImageError, match=r"/opt/module\.so needs libz\.so\.6, which the image lacks"):
        build.check(
            write_archive(tmp_path / "image.tar", content, elf.architecture(content)), tmp_path / "sbom.json"
        )


def compiled_module() -> bytes:
    spec = importlib.util.find_spec("msgspec._core")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


def test_an_archive_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "image.tar"), str(tmp_path / "sbom.json")]) == 1
    assert f"{tmp_path / 'image.tar'}" in capsys.readouterr().err
