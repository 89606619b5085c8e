"""Uploads and signs a release, part by part: the commands that the workflow runs, with its credentials.

Standard library only. The programs are skopeo, cosign, helm, jq, twine and gh.
"""

import json
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import registry
from tools.release import CHECKSUMS, IMAGE_SUMMARY, NOTES, PROVENANCE, ReleaseError, digests

SIGNATURE = f"{CHECKSUMS}.sigstore.json"


def run(folder: Path, parts: Sequence[str], *, dry_run: bool) -> None:
    """Run the commands of these parts, of all if there are none, or print them.

    Raises:
        ReleaseError: the files are not those of the checksums, or a command failed.
    """
    check(folder)
    for part in parts or PARTS:
        for command in PARTS[part](folder):
            print(command, flush=True)
            if not dry_run and (status := subprocess.run(["sh", "-euc", command], check=False).returncode):
                raise ReleaseError(f"{part}: the command ended with {status}: {command}")


def check(folder: Path) -> None:
    """Check the files against the checksums: an upload between two jobs could have lost or changed one.

    Raises:
        ReleaseError: a file is missing or another one.
    """
    listed = read_checksums(folder)
    found = digests(folder, without=(CHECKSUMS, SIGNATURE))
    if wrong := sorted(name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name)):
        raise ReleaseError(f"{folder}: not the files of {CHECKSUMS}: {', '.join(wrong)}")


def read_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file as ``checksums.txt`` lists it.

    Raises:
        ReleaseError: there is no such file.
    """
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise ReleaseError(f"{folder} is no release: it has no {CHECKSUMS}") from error
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def _image(folder: Path) -> list[str]:
    summary = json.loads((folder / IMAGE_SUMMARY).read_text(encoding="utf-8"))
    archive, provenance = (_quoted(folder / name) for name in (summary["archive"], PROVENANCE))
    image = f"{registry.IMAGE}@{summary['digest']}"
    attest = "cosign attest --yes --type"
    bills = [
        (_quoted(folder / each["sbom"]), f"{registry.IMAGE}@{each['digest']}") for each in summary["images"]
    ]
    return [
        f"skopeo copy --all --preserve-digests oci-archive:{archive} docker://{summary['name']}",
        f"cosign sign --yes --recursive {image}",
        # cosign puts the predicate into a statement about the image.
        f"jq -e .predicate {provenance} | {attest} slsaprovenance1 --predicate - {image}",
        *(f"{attest} cyclonedx --predicate {bill} {subject}" for bill, subject in bills),
    ]


def _chart(folder: Path) -> list[str]:
    (package,) = folder.glob("*.tgz")
    name, _, version = package.stem.partition("-")
    chart = f"{registry.CHARTS}/{name}"
    # Without --raw, skopeo reads images only. helm prints the digest, but into its log.
    digest = f"skopeo inspect --raw docker://{chart}:{version} | sha256sum | cut -c -64"
    return [
        f"helm push {_quoted(package)} oci://{registry.CHARTS}",
        f"cosign sign --yes {chart}@sha256:$({digest})",
    ]


def _distributions(folder: Path) -> list[str]:
    files = sorted(path for pattern in ("*.whl", "*.tar.gz") for path in folder.glob(pattern))
    return [f"twine upload {' '.join(map(_quoted, files))}"]


def _forge(folder: Path) -> list[str]:
    checksums, signature = folder / CHECKSUMS, folder / SIGNATURE
    files = sorted({*folder.iterdir(), signature} - {folder / NOTES})
    version = folder.name
    candidate = "" if version.replace(".", "").isdigit() else "--prerelease "
    options = f"--verify-tag --title v{version} {candidate}--notes-file {_quoted(folder / NOTES)}"
    return [
        f"cosign sign-blob --yes --bundle {_quoted(signature)} {_quoted(checksums)}",
        f"gh release create v{version} {options} {' '.join(map(_quoted, files))}",
    ]


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


PARTS: dict[str, Callable[[Path], list[str]]] = {
    "image": _image,
    "chart": _chart,
    "distributions": _distributions,
    "forge": _forge,
}
"""What is published, in this order: the page of the release comes last, when all that it names is there."""
