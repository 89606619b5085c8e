"""Users of the control plane, and their files: token file and kubeconfig."""

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class User:
    """A user with a bearer token. Without groups it has the rights that RBAC grants its name."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


def administrator(name: str) -> User:
    """Return a user with all rights."""
    return User(name, groups=("system:masters",))


def token_file(users: Iterable[User]) -> str:
    """Return the CSV for ``--token-auth-file`` of kube-apiserver: token, name, uid and, if any, groups."""
    return "".join(_token_line(user) for user in users)


def _token_line(user: User) -> str:
    # An empty last column would be read as one group without a name.
    groups = f',"{",".join(user.groups)}"' if user.groups else ""
    return f'{user.token},"{user.name}","{user.name}"{groups}\n'


def kubeconfig(server: str, ca_pem: bytes, token: str, *, user: str, namespace: str = "default") -> str:
    """Return a kubeconfig with one cluster, one user and one context, all inline."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "loopback",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": base64.b64encode(ca_pem).decode(),
                    },
                }
            ],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [
                {"name": user, "context": {"cluster": "loopback", "user": user, "namespace": namespace}}
            ],
            "current-context": user,
        },
        sort_keys=False,
    )


def write_private(path: Path, content: str | bytes) -> Path:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
