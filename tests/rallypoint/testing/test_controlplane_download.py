"""Downloading the control plane: choosing the file for this machine, and trusting nothing without its checksum.

The publishers are a server on loopback.
"""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from rallypoint.testing.controlplane import download
from rallypoint.testing.controlplane.download import Publishers, envtest_archive, go_platform, kwok_binary
from rallypoint.testing.controlplane.programs import KUBERNETES

ARCH = go_platform("Linux", "x86_64")


def index(*releases: str, os_name: str = "linux", arch: str = "amd64") -> dict[str, Any]:
    return {
        "releases": {
            release: {
                f"envtest-{release}-{os_name}-{arch}.tar.gz": {
                    "hash": "00",
                    "selfLink": f"https://x/{release}",
                }
            }
            for release in releases
        }
    }


@pytest.mark.parametrize(
    ("releases", "chosen"),
    [
        pytest.param(["v1.36.0", "v1.36.3", "v1.36.10"], "v1.36.3", id="the exact version"),
        pytest.param(["v1.36.2", "v1.36.10", "v1.37.0"], "v1.36.10", id="else the newest patch, by number"),
        pytest.param(["v1.35.0", "v1.36.0-rc.1"], None, id="neither another minor version nor a candidate"),
    ],
)
def test_envtest_archive(releases: list[str], chosen: str | None) -> None:
    archive = envtest_archive(index(*releases), "1.36.3", "linux", "amd64")

    assert (archive.url if archive else None) == (f"https://x/{chosen}" if chosen else None)


def test_an_archive_for_another_processor_is_none() -> None:
    assert envtest_archive(index("v1.36.3", arch="arm64"), "1.36.3", "linux", "amd64") is None


def test_kwok_without_a_checksum_is_none() -> None:
    asset = {"name": "kwok-linux-amd64", "browser_download_url": "https://x/kwok", "digest": None}

    assert kwok_binary({"assets": [asset]}, "linux", "amd64") is None
    checked = kwok_binary({"assets": [asset | {"digest": "sha256:ab"}]}, "linux", "amd64")
    assert checked == download.Artifact("https://x/kwok", "sha256", "ab")


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        pytest.param("Linux", "x86_64", ("linux", "amd64"), id="Linux on x86"),
        pytest.param("Linux", "aarch64", ("linux", "arm64"), id="Linux on ARM"),
        pytest.param("Darwin", "arm64", ("darwin", "arm64"), id="macOS on ARM"),
        pytest.param("Linux", "ppc64le", ("linux", "ppc64le"), id="other platforms have Go's names"),
    ],
)
def test_go_platform(system: str, machine: str, expected: tuple[str, str]) -> None:
    assert go_platform(system, machine) == expected


class PublisherServer:
    """The files of the publishers, by path."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.publishers = Publishers(f"{address}/envtest.yaml", f"{address}/release", f"{address}/kwok.json")

    def publish_envtest(self, *names: str, digest: str = "") -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name in names:
                entry = tarfile.TarInfo(f"controller-tools/envtest/{name}")
                entry.size = len(name)
                tar.addfile(entry, io.BytesIO(name.encode()))
        self.files["/archive"] = archive.getvalue()
        entry_name = f"envtest-v{KUBERNETES}-linux-amd64.tar.gz"
        sha512 = digest or hashlib.sha512(archive.getvalue()).hexdigest()
        entry_value = {"hash": sha512, "selfLink": f"{self.address}/archive"}
        self.files["/envtest.yaml"] = yaml.safe_dump(
            {"releases": {f"v{KUBERNETES}": {entry_name: entry_value}}}
        ).encode()

    def publish_release(self, name: str, content: bytes) -> None:
        path = f"/release/v{KUBERNETES}/bin/linux/amd64/{name}"
        self.files[path] = content
        self.files[f"{path}.sha512"] = hashlib.sha512(content).hexdigest().encode()

    def publish_kwok(self, content: bytes) -> None:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        url = f"{self.address}/kwok-program"
        asset = {"name": "kwok-linux-amd64", "browser_download_url": url, "digest": digest}
        self.files["/kwok.json"] = json.dumps({"assets": [asset]}).encode()
        self.files["/kwok-program"] = content


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[PublisherServer]:
    monkeypatch.setattr(download, "go_platform", lambda system, machine: ARCH)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = published.files.get(self.path)
            self.send_response(200 if content is not None else 404)
            self.end_headers()
            self.wfile.write(content or b"")

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        published = PublisherServer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield published
        server.shutdown()
        thread.join()


def test_each_program_comes_from_its_publisher(publisher: PublisherServer, tmp_path: Path) -> None:
    publisher.publish_envtest("etcd", "kube-apiserver", "kubectl")
    publisher.publish_release("kube-controller-manager", b"kcm")
    publisher.publish_kwok(b"kwok")
    said: list[str] = []

    wanted = ["etcd", "kube-apiserver", "kube-controller-manager", "kwok"]
    download.fetch(wanted, tmp_path, say=said.append, publishers=publisher.publishers)

    contents = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert contents == {
        "etcd": "etcd",
        "kube-apiserver": "kube-apiserver",
        "kube-controller-manager": "kcm",
        "kwok": "kwok",
    }
    assert all(path.stat().st_mode & 0o777 == 0o755 for path in tmp_path.iterdir())


def test_a_wrong_checksum_leaves_nothing(publisher: PublisherServer, tmp_path: Path) -> None:
    publisher.publish_envtest("etcd", digest="0" * 128)
    said: list[str] = []

    download.fetch(["etcd"], tmp_path, say=said.append, publishers=publisher.publishers)

    assert list(tmp_path.iterdir()) == []
    assert said == [f"  no download: {publisher.address}/archive does not have the published sha512"]


def test_a_failing_publisher_does_not_stop_the_others(publisher: PublisherServer, tmp_path: Path) -> None:
    publisher.publish_kwok(b"kwok")
    said: list[str] = []

    download.fetch(["etcd", "kwok"], tmp_path, say=said.append, publishers=publisher.publishers)

    assert [path.name for path in tmp_path.iterdir()] == ["kwok"]
    assert said[0].startswith(f"  no download: {publisher.address}/envtest.yaml: HTTP Error 404")
