"""``python -m tools.chart``: see the package."""

import argparse
import gzip
import io
import re
import shutil
import sys
import tarfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from rallypoint.testing.manifests import build
from tools.chart import templates, values
from tools.version import checked, semantic

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "rallypoint"
STANDALONE = ROOT / "manifests" / "overlays" / "standalone"
README = Path(__file__).parent / "README.md"
OLDEST_KUBERNETES = ">=1.29.0-0"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def files(version: str = "", *, image: str = "", digest: str = "") -> dict[str, str]:
    """Return the text of each file of the chart, by its path in it.

    Args:
        version: of the operator, as in ``pyproject.toml``; default is that of the image in ``manifests``.
        image: the default repository of the image, in place of that in ``manifests``.
        digest: the default digest of the image.
    """
    (deployment,) = (document for document in build(STANDALONE) if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    repository, _, tag = container["image"].rpartition(":")
    container["image"] = f"{image or repository}:{tag}"
    table = values.table(deployment, digest)
    return {
        "Chart.yaml": _chart(version or tag),
        "README.md": README.read_text(encoding="utf-8") + values.reference(table),
        "values.yaml": values.values_yaml(table),
        "values.schema.json": values.schema(table),
        ".helmignore": "",
        **templates.render(),
    }


def _chart(version: str) -> str:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = {
        "apiVersion": "v2",
        "name": "rallypoint",
        "description": project["description"],
        "type": "application",
        "version": semantic(version),
        "appVersion": str(checked(version)),
        "kubeVersion": OLDEST_KUBERNETES,
        "home": project["urls"]["Repository"],
        "sources": [project["urls"]["Repository"]],
        "annotations": {"artifacthub.io/license": project["license"]},
    }
    return "# Made by `python -m tools.chart`.\n" + yaml.safe_dump(chart, sort_keys=False, width=1000)


def write(folder: Path) -> None:
    """Write the chart into ``folder``, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def package(folder: Path, contents: dict[str, str]) -> Path:
    """Write the archive that ``helm package`` would make into ``folder``, with the same bytes each time; return its path."""
    version = yaml.safe_load(contents["Chart.yaml"])["version"]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(contents, key=lambda name: (name != "Chart.yaml", name)):
            data = contents[name].encode()
            member = tarfile.TarInfo(f"rallypoint/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rallypoint-{version}.tgz"
    path.write_bytes(gzip.compress(buffer.getvalue(), compresslevel=9, mtime=0))
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.chart", description="Write the Helm chart.")
    commands = parser.add_subparsers(dest="command")
    packaged = commands.add_parser("package", help="write an archive of the chart")
    packaged.add_argument("--output", type=Path, required=True, metavar="DIR")
    packaged.add_argument(
        "--version", default="", help="of the operator, such as 0.2.0rc1; default: that of manifests"
    )
    packaged.add_argument("--image", default="", metavar="REPOSITORY", help="default repository of the image")
    packaged.add_argument("--digest", default="", help="default digest of the image, sha256:…")
    options = parser.parse_args(arguments)
    if options.command is None:
        write(CHART)
        print(CHART)
        return 0
    if options.digest and not _DIGEST.fullmatch(options.digest):
        parser.error(f"--digest: {options.digest!r} is not sha256: with 64 hexadecimal digits")
    try:
        contents = files(options.version, image=options.image, digest=options.digest)
    except ValueError as error:
        parser.error(f"--version: {error}")
    print(package(options.output, contents))
    return 0


if __name__ == "__main__":
    sys.exit(main())
