"""Builds a release, verifies it and says how to publish it: ``python -m tools.release``, which `make release` calls.

``build`` makes the files in ``dist/VERSION``, ``verify`` checks them, ``twice`` builds in two clones and compares, ``publish`` uploads.
docs/how-to/release.md describes the way of a release.

``publish`` and all that it imports, this module included, use the standard library only: it runs where nothing is installed.
"""

from hashlib import sha256
from pathlib import Path

CHECKSUMS = "checksums.txt"
PROVENANCE = "provenance.intoto.json"
NOTES = "release-notes.md"
IMAGE_SUMMARY = "image.json"
"""What ``tools.image`` writes: names, digests and sizes of the archives."""
MANIFESTS = {
    "manifests.yaml": Path("manifests/overlays/standalone"),
    "manifests-kubeflow.yaml": Path("manifests/overlays/kubeflow"),
    "manifests-shadow.yaml": Path("manifests/overlays/shadow"),
}
"""File of a release → the kustomization that it is rendered from."""
CRDS = "crds.yaml"
WITHOUT_CRDS = {"manifests-shadow.yaml"}


class ReleaseError(Exception):
    """A release cannot be built or is not as it should be; the message says what and why."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        checksum = sha256()
        while block := file.read(1 << 20):
            checksum.update(block)
    return checksum.hexdigest()


def digests(folder: Path, *, without: tuple[str, ...]) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder by its name, in the order of the names."""
    return {path.name: digest(path) for path in sorted(folder.iterdir()) if path.name not in without}
