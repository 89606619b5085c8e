"""Writes ``deploy`` from ``manifests``: what ``kubectl apply -f`` takes, one file for each way to install.

    .venv/bin/python tools/deploy.py [FOLDER]

The test beside it asks for the same files, and ``kubectl kustomize`` makes the same objects of the same folders.
"""

import sys
from pathlib import Path

from controller.crds.files import to_yaml
from controller.testing.manifests import build

ROOT = Path(__file__).parents[1]
SOURCES = {
    "crds.yaml": Path("manifests/base/crds"),
    "standalone.yaml": Path("manifests/overlays/standalone"),
}
"""File in ``deploy`` → the kustomization that it is rendered from."""


def write(folder: Path) -> list[Path]:
    """Write all files into ``folder``, which is made if need be; files of other names stay."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, source in SOURCES.items():
        header = f"# Made by `make deploy` from {source.as_posix()}; edit that instead.\n"
        path = folder / name
        path.write_text(header + "".join(map(to_yaml, build(ROOT / source))), encoding="utf-8")
        paths.append(path)
    return paths


def main(arguments: list[str]) -> int:
    for path in write(Path(arguments[0]) if arguments else ROOT / "deploy"):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
