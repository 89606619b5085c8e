"""The images that every node of a cluster has, made on this machine: nothing is pulled from anywhere.

``BASE`` has a shell and this Python. The examples' images have the names that their manifests give them: that for MPI has what its
Dockerfile installs; those with a framework lack the framework, whose environment (``environment``) is too large to be loaded into each
node and is mounted from this machine, where it was made. Others answer to the names of images that the operator gives to its init
containers: the wait for a PyTorchJob's master, and kubectl for launchers. The operator's own is the one that a release has, from
``tools.image``, under the name that ``deploy`` gives it.
"""

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from rallypoint.testing.cluster import archive, roots
from rallypoint.testing.cluster.archive import Image
from rallypoint.testing.cluster.layout import PAUSE
from rallypoint.testing.controlplane.binaries import Say
from rallypoint.testing.controlplane.download import go_platform

BASE = "registry.local/base:1"
FRAMEWORKS = ("demo", "jax", "paddle", "tensorflow", "xgboost")
"""Tags of the examples' images, and names of files in requirements."""
_EXAMPLES = "docker.io/library/rallypoint-examples"
_WAIT = "docker.io/library/alpine:3.10"
_DELIVERY = "docker.io/kubeflow/kubectl-delivery:latest"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment(framework: str) -> Path:
    """Return the path of the environment that tools/venv.py creates for a framework."""
    return roots.REPOSITORY / f".venv-{framework}"


def make(folder: Path, kubectl: Path, *, say: Say) -> list[Path]:
    """Write all images, that for launchers with this kubectl; remove the roots they are built from."""
    started = time.monotonic()
    scratch = folder / "roots"
    scratch.mkdir(parents=True)
    small, python = roots.small(scratch / "small"), roots.python(scratch / "python")
    delivery = roots.kubectl(scratch / "kubectl", kubectl)
    shared = {"PATH": _PATH}
    wanted = [
        Image(PAUSE, (small,), entrypoint=("/bin/sleep", "infinity")),
        Image(BASE, (small, python), command=("/bin/sh",), environment=shared),
        Image(_WAIT, (small,), command=("/bin/sh",), environment=shared),
        Image(_DELIVERY, (small, delivery), entrypoint=("/bin/deliver",)),
        *_examples(small, python, scratch),
    ]
    file = archive.write(wanted, folder / "images.tar")
    shutil.rmtree(scratch)
    files = [file, operator(folder / "operator")]
    say(f"  images: {time.monotonic() - started:.0f} s")
    return files


def _examples(small: Path, python: Path, scratch: Path) -> Iterator[Image]:
    programs, path_in_image = roots.examples(scratch / "examples"), str(roots.EXAMPLES)
    mpi = (small, python, roots.mpi(scratch / "mpi"), programs)  # python: as in the Dockerfile
    yield Image(f"{_EXAMPLES}:mpi", mpi, environment={"PATH": _PATH}, folder=path_in_image)
    layers = (small, python, roots.frameworks(scratch / "frameworks"), programs)
    for name in FRAMEWORKS:
        path = f"{environment(name)}/bin:{_PATH}"
        yield Image(f"{_EXAMPLES}:{name}", layers, environment={"PATH": path}, folder=path_in_image)


def operator(folder: Path) -> Path:
    """Build the operator's image for this machine's processor, as a release does; return its archive.

    Raises:
        subprocess.CalledProcessError: it cannot be built; ``stderr`` says why.
    """
    _, architecture = go_platform(platform.system(), platform.machine())
    options = ("--output", str(folder), "--arch", architecture, "--name", operator_name(), "--no-start")
    command = [sys.executable, "-m", "tools.image", "build", *options]
    subprocess.run(command, cwd=roots.REPOSITORY, check=True, capture_output=True, text=True)
    return folder / f"image-{architecture}.tar"


def operator_name() -> str:
    """Return the full name of the image in ``deploy``."""
    documents = yaml.load_all(
        (roots.REPOSITORY / "deploy" / "standalone.yaml").read_text(), Loader=yaml.CSafeLoader
    )
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return f"docker.io/library/{container['image']}"
