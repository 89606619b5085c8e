"""Debian packages of the base: the lock, the download, the files that the image keeps, and dpkg's database of them."""

import io
import json
import tarfile
from collections.abc import Generator, Mapping
from hashlib import md5, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typing_extensions import override

from tools.image import ImageError, debian
from tools.image.debian import Package
from tools.image.files import Component, File, Link

ROOT = Path(__file__).parents[3]
CONTROL = "Package: libsmall1\nSource: small (1.0)\nVersion: 1:1.0-1\nArchitecture: amd64\nMulti-Arch: same\n"
COPYRIGHT = (
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nLicense: Zlib\n"
)
FILES = {
    "usr/lib/x86_64-linux-gnu/libsmall.so.1": "library",
    "usr/share/doc/libsmall1/copyright": COPYRIGHT,
    "usr/share/doc/libsmall1/changelog.gz": "changes",
    "usr/share/man/man3/small.3": "manual",
}


def tar(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
        link = tarfile.TarInfo("./usr/lib/x86_64-linux-gnu/libsmall.so")
        link.type, link.linkname = tarfile.SYMTYPE, "libsmall.so.1"
        archive.addfile(link)
    return buffer.getvalue()


def deb(control: str = CONTROL, files: Mapping[str, str] = FILES) -> bytes:
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": tar({"control": control}),
        "data.tar.xz": tar(files),
    }
    return b"!<arch>\n" + b"".join(
        f"{name:16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        + content
        + b"\n" * (len(content) % 2)
        for name, content in members.items()
    )


def package(content: bytes) -> Package:
    return Package(
        "libsmall1", "1:1.0-1", "debian", "pool/main/s/small/libsmall1.deb", sha256(content).hexdigest()
    )


def unpacked(control: str = CONTROL, files: Mapping[str, str] = FILES) -> Component:
    return debian.unpack(deb(control, files), "digest")


@pytest.mark.parametrize("architecture", debian.ARCHITECTURES)
def test_the_lock_has_every_package_with_its_hash(architecture: str) -> None:
    packages = debian.read_lock(ROOT / debian.LOCK, architecture)

    assert {package.name for package in packages} == set(debian.PACKAGES)
    assert all(len(package.sha256) == 64 for package in packages)
    assert all(package.path.endswith((f"_{architecture}.deb", "_all.deb")) for package in packages)


def test_a_lock_without_a_package_is_refused(tmp_path: Path) -> None:
    lock = json.loads((ROOT / debian.LOCK).read_text())
    del lock["packages"]["amd64"]["libc6"]
    (tmp_path / "lock.json").write_text(json.dumps(lock))

    with pytest.raises(ImageError, match="make image-lock"):
        debian.read_lock(tmp_path / "lock.json", "amd64")


def test_a_package_has_its_version_and_license_and_the_files_that_are_used() -> None:
    component = unpacked()

    assert (component.name, component.version, component.licenses) == ("libsmall1", "1:1.0-1", ("Zlib",))
    assert component.files == {
        "usr/lib/x86_64-linux-gnu/libsmall.so": Link("libsmall.so.1"),
        "usr/lib/x86_64-linux-gnu/libsmall.so.1": File(b"library"),
        "usr/share/doc/libsmall1/copyright": File(COPYRIGHT.encode()),
    }


def test_certificates_become_one_file() -> None:
    files = {
        "usr/share/ca-certificates/mozilla/b.crt": "B\n",
        "usr/share/ca-certificates/mozilla/a.crt": "A\n",
        "usr/share/doc/libsmall1/copyright": COPYRIGHT,
    }

    component = unpacked(files=files)

    assert component.files[debian.CERTIFICATES] == File(b"A\nB\n")
    assert not any(path.startswith("usr/share/ca-certificates") for path in component.files)


def test_a_license_in_prose_is_refused() -> None:
    with pytest.raises(ImageError, match="the license of small is in prose"):
        debian.licenses("small", "This package was put together by hand.")


def test_a_file_that_is_no_package_is_refused() -> None:
    with pytest.raises(ImageError, match="no ar archive"):
        debian.unpack(b"<html>", "digest")


def test_the_database_lists_the_files_that_the_image_has() -> None:
    tree = debian.database([unpacked()], "amd64")

    assert set(tree) == {
        "var/lib/dpkg/status",
        "var/lib/dpkg/info/libsmall1:amd64.list",
        "var/lib/dpkg/info/libsmall1:amd64.md5sums",
    }
    status, sums = tree["var/lib/dpkg/status"], tree["var/lib/dpkg/info/libsmall1:amd64.md5sums"]
    assert isinstance(status, File)
    assert isinstance(sums, File)
    assert b"Package: libsmall1\nStatus: install ok installed\n" in status.content
    assert f"{md5(b'library').hexdigest()}  usr/lib/x86_64-linux-gnu/libsmall.so.1\n".encode() in sums.content
    assert b"manual" not in sums.content


def test_a_download_is_cached_and_later_needs_no_mirror(tmp_path: Path) -> None:
    content = deb()
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "libsmall1.deb").write_bytes(content)

    assert debian.download(package(content), tmp_path, {}) == content


def test_a_package_changed_in_the_cache_is_refused(tmp_path: Path) -> None:
    content = deb()
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "libsmall1.deb").write_bytes(content + b"more")

    with pytest.raises(ImageError, match=r"libsmall1\.deb does not have the SHA-256"):
        debian.download(package(content), tmp_path, {})


class Mirror(BaseHTTPRequestHandler):
    """Has one file, which is no package."""

    def do_GET(self) -> None:  # the name is http.server's
        is_known = self.path == "/debian/pool/main/s/small/libsmall1.deb"
        self.send_response(200 if is_known else 404)
        self.end_headers()
        if is_known:
            self.wfile.write(b"other")

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def mirror() -> Generator[dict[str, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield debian.mirrors(f"http://127.0.0.1:{server.server_port}/{{archive}}")
        server.shutdown()
        thread.join()


def test_a_download_with_another_hash_is_refused_and_not_cached(
    tmp_path: Path, mirror: Mapping[str, str]
) -> None:
    with pytest.raises(ImageError, match=r"http://127.* does not have the SHA-256"):
        debian.download(package(deb()), tmp_path, mirror)

    assert not any((tmp_path / "debian").iterdir())


def test_a_version_that_debian_has_replaced_is_named_with_the_remedy(
    tmp_path: Path, mirror: Mapping[str, str]
) -> None:
    gone = package(deb())._replace(path="pool/main/s/small/libsmall1_1.0.deb")

    with pytest.raises(ImageError, match=r"libsmall1 1:1\.0-1 is not at .*make image-lock.*--mirror"):
        debian.download(gone, tmp_path, mirror)


def test_a_mirror_needs_a_place_for_the_archive() -> None:
    assert (
        debian.mirrors("https://mirror.example/{archive}")["debian-security"]
        == "https://mirror.example/debian-security/"
    )
    with pytest.raises(ImageError, match=r"--mirror https://mirror\.example"):
        debian.mirrors("https://mirror.example")
