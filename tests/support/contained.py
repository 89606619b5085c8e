"""``python -m controller`` as in a container of the image: its packages, its user, a pod's files; Linux, as root.

    python -m tests.support.contained ENVIRONMENT FOLDER [FLAG...]

ENVIRONMENT is a virtual environment, as ``environment.build`` makes it; FOLDER holds the ServiceAccount's files, which
lie where the kubelet mounts them. The rest of the file system is this machine's.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rallypoint.local.node.sandbox.daemon import system
from rallypoint.local.node.sandbox.daemon.view import FilesystemView, Mount

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
USER = 65532
"""The image's user."""
DECLARED = ("KUBERNETES_SERVICE_", "MY_POD_", "MALLOC_")
"""Prefixes of the variables that a pod of the Deployment has."""


def enter(environment: Path, service_account: Path) -> None:
    """Give this process a pod's files and the image's user."""
    system.unshare(system.CLONE_NEWNS)
    system.mount("none", "/", flags=system.MS_REC | system.MS_PRIVATE)
    interpreter = (environment / "bin" / "python").resolve()
    view = FilesystemView("/nowhere")
    for needed in (environment, interpreter):
        _open_way(view, needed)
    for path in (service_account, *service_account.iterdir()):
        os.chown(path, USER, USER)
    view.mount([Mount(str(service_account), SERVICE_ACCOUNT, read_only=True)])
    os.setgroups([])
    os.setgid(USER)
    os.setuid(USER)
    system.die_with_parent()  # Another user's process has forgotten that.


def _open_way(view: FilesystemView, path: Path) -> None:
    """Let every user enter the folders above, in this process's mount namespace alone."""
    for folder in reversed(path.parents):
        if not folder.stat().st_mode & 1:
            # Pods never need this, so it has no public name.
            view._replace_with_tmpfs(str(folder))  # pyright: ignore[reportPrivateUsage]
            folder.chmod(0o755)


def variables(environment: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the image, and those that the Deployment and the kubelet add."""
    declared = {name: value for name, value in given.items() if name.startswith(DECLARED)}
    path = f"{environment}/bin:/usr/local/bin:/usr/bin:/bin"
    return {"PATH": path, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **declared}


def main(environment: Path, service_account: Path, *flags: str) -> None:
    enter(environment, service_account)
    os.chdir("/")
    command = [str(environment / "bin" / "python"), "-m", "controller", *flags]
    os.execve(command[0], command, variables(environment, os.environ))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
