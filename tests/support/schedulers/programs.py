"""The schedulers that queues and gangs are tested with: versions, sources, and where they are kept.

All are published as Go modules under the Apache License 2.0, and are compiled from there; nothing of them is part of
this repository. What else of a module is needed, such as its CustomResourceDefinitions, is kept beside its programs.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rallypoint.testing.controlplane import binaries, gobuild
from rallypoint.testing.controlplane.programs import Program


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module at one version."""

    path: str
    version: str
    programs: Mapping[str, str]
    """The main package, inside the module, of each program."""
    files: Mapping[str, str]
    """The places, inside the module, of files and folders that are kept, by the name that they are kept under."""
    replacements: tuple[str, ...] = ()
    """In Go's words: versions of modules that it has in its own tree, which is not published with it."""

    def folder(self, environ: Mapping[str, str] = os.environ) -> Path:
        """Where programs and files are kept; the folder need not exist yet."""
        name = f"{self.path.rpartition('/')[2]}-v{self.version}"
        return binaries.cache_root(environ) / "schedulers" / name


KUEUE = Module(
    "sigs.k8s.io/kueue",
    "0.19.2",
    programs={"kueue": "cmd/kueue"},
    files={
        "crds": "config/components/crd/bases",
        "webhooks.yaml": "config/components/webhook/manifests.yaml",
    },
)
COSCHEDULING = Module(
    "sigs.k8s.io/scheduler-plugins",
    "0.32.7",
    programs={"coscheduling-scheduler": "cmd/scheduler", "coscheduling-controller": "cmd/controller"},
    files={"crds": "config/crd/bases"},
)
VOLCANO = Module(
    "volcano.sh/volcano",
    "1.14.1",
    programs={"volcano-scheduler": "cmd/scheduler", "volcano-controller": "cmd/controller-manager"},
    files={"crds": "config/crd/volcano/bases"},
    replacements=("volcano.sh/apis=volcano.sh/apis@v1.14.0",),
)
ALL = (KUEUE, COSCHEDULING, VOLCANO)


def ensure(module: Module, *, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder with a module's programs and files; what is missing is compiled first, which takes minutes.

    Raises:
        Unavailable: Go is missing, too old, or failed.
    """
    folder = module.folder(environ)
    folder.mkdir(parents=True, exist_ok=True)
    say = binaries.say_on_stderr
    with binaries.alone_in(folder, say):
        version = f"v{module.version}"
        missing = [
            Program(
                name,
                module.path,
                version,
                f"{module.path}/{package}",
                replacements=module.replacements,
            )
            for name, package in module.programs.items()
            if not (folder / name).exists()
        ]
        if missing:
            say(
                f"{module.path} {version}: {', '.join(program.name for program in missing)} wanted in {folder}"
            )
            gobuild.build(missing, folder, say=say)
        if not all((folder / name).exists() for name in module.files):
            _copy(gobuild.module_directory(module.path, version), module.files, folder)
    return folder


def _copy(source: Path, files: Mapping[str, str], folder: Path) -> None:
    """Without the modes: nothing in a module cache may be written."""
    for name, path_in_module in files.items():
        if (source / path_in_module).is_dir():
            shutil.copytree(
                source / path_in_module, folder / name, copy_function=shutil.copyfile, dirs_exist_ok=True
            )
            (folder / name).chmod(0o755)
        else:
            shutil.copyfile(source / path_in_module, folder / name)
