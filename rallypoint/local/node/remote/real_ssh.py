"""Files that the machine's own ssh and sshd need in pods, for ``--real-ssh``.

Images for MPI contain an ssh configuration without known hosts, and sshd's folder for privilege separation. This machine
may have neither. Source: mpi-operator 0.8, build/base/Dockerfile.
"""

from pathlib import Path

from rallypoint.local.manifest import Manifest
from rallypoint.local.node.volumes.setup import Mount

KEYS = "ssh-auth"
"""The volume with the job's keys."""
KEY_FILE = "id_rsa"
CONFIG = "/etc/ssh/ssh_config.d/rallypoint.conf"
PRIVILEGE_SEPARATION = "/run/sshd"
ORDINARY_PORT = 2222
"""The port of an sshd in such images if it does not run as root."""


def config(pod: Manifest, *, is_root: bool) -> str:
    """Return the client's configuration. It names the job's keys, because their mount may be outside of the user's home."""
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


def mounts(pod: Manifest, folder: Path, *, is_root: bool) -> list[Mount]:
    """Create the files in ``folder`` and return the mounts for each container of the pod."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config").write_text(config(pod, is_root=is_root))
    (folder / "sshd").mkdir(mode=0o755, exist_ok=True)
    return [
        Mount("", CONFIG, folder / "config", read_only=True),
        Mount("", PRIVILEGE_SEPARATION, folder / "sshd"),
    ]


def protect(keys: Path) -> None:
    """Make the job's keys readable only by their owner: ssh refuses other modes."""
    for file in keys.iterdir() if keys.is_dir() else ():
        if file.is_file():
            file.chmod(0o600)
