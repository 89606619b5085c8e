"""The tools in pods of MPI jobs: ``ssh`` and ``kubectl`` on their PATH, and replacements of sshd and kubectl-delivery.

The tools are scripts with the UID of their pod. A container that would run sshd sleeps, because no client connects to
it. The init container that delivers kubectl delivers the script.

With ``--real-ssh`` pods run the machine's own ssh and sshd. Images for MPI contain an ssh configuration without known
hosts and sshd's folder for privilege separation, which this machine may lack, so the pods get both as mounts.
Source: mpi-operator 0.8, build/base/Dockerfile.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.remote import shim
from rallypoint.local.node.remote.target import is_equipped, job_of
from rallypoint.local.node.volumes.setup import Mount

DELIVERY = "kubectl-delivery"
SSHD_MESSAGE = "sshd is not started: the node runs the ssh commands of this job (--real-ssh starts sshd)"
WAIT_SCRIPT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done"
"""Exits with status 0 on SIGTERM, as sshd does."""
SCRIPT = """\
#!/bin/sh
python={python}
[ -x "$python" ] || python=python3
exec "$python" -I -S {shim} {folder} {pod} {tool} "$@"
"""

KEYS = "ssh-auth"
"""The volume with the job's keys."""
KEY_FILE = "id_rsa"
SSH_CONFIG = "/etc/ssh/ssh_config.d/rallypoint.conf"
PRIVILEGE_SEPARATION = "/run/sshd"
ORDINARY_PORT = 2222
"""The port of an sshd in such images if it does not run as root."""


class Tools:
    """The tools of one node's pods, in ``folder``."""

    def __init__(self, folder: Path, *, real_ssh: bool = False) -> None:
        self.folder = folder
        self._real_ssh = real_ssh
        self._jobs_with_message: set[str] = set()
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(shim.__file__, folder / "shim.py")

    def install(self, pod: Manifest) -> None:
        """Give a pod its tools."""
        if not is_equipped(pod):
            return
        own = self.folder / str(pod["metadata"]["uid"])
        (own / "bin").mkdir(parents=True, exist_ok=True)
        self._write(pod, "kubectl", own / "kubectl")
        if not self._real_ssh:
            self._write(pod, "ssh", own / "bin" / "ssh")

    def mounts(self, pod: Manifest) -> list[Mount]:
        """Return the mounts of each container of a pod in addition to its volumes."""
        if not (self._real_ssh and is_equipped(pod)):
            return []
        own = self.folder / str(pod["metadata"]["uid"]) / "real"
        (own / "sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
        (own / "config").write_text(ssh_config(pod, is_root=os.geteuid() == 0))
        return [
            Mount("", SSH_CONFIG, own / "config", read_only=True),
            Mount("", PRIVILEGE_SEPARATION, own / "sshd"),
        ]

    def protect(self, pod: Manifest, volumes: Path) -> None:
        """Make the SSH keys readable only by their owner, because ssh refuses other modes.

        ``volumes`` is the folder with the pod's new volumes.
        """
        keys = volumes / KEYS
        if self._real_ssh and is_equipped(pod) and keys.is_dir():
            for file in keys.iterdir():
                if file.is_file():
                    file.chmod(0o600)

    def release(self, pod: Manifest) -> None:
        shutil.rmtree(self.folder / str(pod["metadata"]["uid"]), ignore_errors=True)

    def on_path(self, pod: Manifest, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` with the pod's tools first on PATH."""
        if not is_equipped(pod):
            return dict(env)
        own = self.folder / str(pod["metadata"]["uid"]) / "bin"
        return {**env, "PATH": f"{own}{os.pathsep}{env.get('PATH', os.defpath)}"}

    def replacement(self, pod: Manifest, container: Manifest) -> Manifest:
        """Return the container to run: a replacement for sshd and kubectl-delivery, else the container itself."""
        if is_delivery(container):
            kubectl = self.folder / str(pod["metadata"]["uid"]) / "kubectl"
            script = f'exec cp {shlex.quote(str(kubectl))} "$TARGET_DIR/kubectl"'
        elif is_sshd(container) and is_equipped(pod) and not self._real_ssh:
            script = (
                f"echo {shlex.quote(SSHD_MESSAGE)}; {WAIT_SCRIPT}" if self._record_job(pod) else WAIT_SCRIPT
            )
        else:
            return container
        return {**container, "command": ["/bin/sh", "-c", script], "args": []}

    def _record_job(self, pod: Manifest) -> bool:
        """Record the pod's job; return whether the job is new. Its message is logged once."""
        owners = [owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()]
        job = owners[0] if owners else f"{pod['metadata']['namespace']}/{job_of(pod)}"
        is_first = job not in self._jobs_with_message
        self._jobs_with_message.add(job)
        return is_first

    def _write(self, pod: Manifest, tool: str, path: Path) -> None:
        words = {
            "python": sys.executable,
            "shim": str(self.folder / "shim.py"),
            "folder": str(self.folder),
            "pod": str(pod["metadata"]["uid"]),
        }
        path.write_text(SCRIPT.format(tool=tool, **{name: shlex.quote(word) for name, word in words.items()}))
        path.chmod(0o755)


def is_delivery(container: Manifest) -> bool:
    """Return whether this is the init container that copies kubectl by the command of its image."""
    return container["name"] == DELIVERY and not container.get("command")


def is_sshd(container: Manifest) -> bool:
    return PurePosixPath((container.get("command") or [""])[0]).name == "sshd"


def ssh_config(pod: Manifest, *, is_root: bool) -> str:
    """Return the configuration of ssh. It names the job's keys, whose mount may be outside of the user's home."""
    mounts = [
        mount for container in pod["spec"]["containers"] for mount in container.get("volumeMounts") or ()
    ]
    keys = {mount["mountPath"] for mount in mounts if mount["name"] == KEYS}
    return "\n".join(
        [
            "Host *",
            "  StrictHostKeyChecking no",
            "  UserKnownHostsFile /dev/null",
            "  LogLevel ERROR",
            *(f"  IdentityFile {folder}/{KEY_FILE}" for folder in sorted(keys)),
            *([] if is_root else [f"  Port {ORDINARY_PORT}"]),
            "",
        ]
    )
