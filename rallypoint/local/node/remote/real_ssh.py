"""What the machine's own ssh and sshd need in pods, where they are asked for.

Images for MPI bring an ssh that asks for no known hosts, and the folder that sshd shuts its helpers in; this machine
need not have either. Source: mpi-operator 0.8, build/base/Dockerfile.
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
"""What such images have an sshd listen at that is not root's."""


def config(pod: Manifest, *, is_root: bool) -> str:
    """Of the client. The job's keys are named, for their mount need not be in the home of who runs this."""
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
    """Of each container of the pod; what they show is made in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config").write_text(config(pod, is_root=is_root))
    (folder / "sshd").mkdir(mode=0o755, exist_ok=True)
    return [
        Mount("", CONFIG, folder / "config", read_only=True),
        Mount("", PRIVILEGE_SEPARATION, folder / "sshd"),
    ]


def protect(keys: Path) -> None:
    """Let the owner alone read the job's keys: ssh refuses them otherwise, as they are not another user's here."""
    for file in keys.iterdir() if keys.is_dir() else ():
        if file.is_file():
            file.chmod(0o600)
