"""Who may talk to the control plane, and the files that let them: token file, kubeconfig."""

import base64
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a bearer token; without groups only what RBAC grants the name is allowed."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)


def administrator(name: str) -> User:
    """A user who may do everything."""
    return User(name, groups=("system:masters",))


def token_file(users: Iterable[User]) -> str:
    """The CSV that kube-apiserver's ``--token-auth-file`` reads: token, name, uid and, if there are any, groups."""
    return "".join(_token_line(user) for user in users)


def _token_line(user: User) -> str:
    # An empty last column would be read as one group without a name.
    groups = f',"{",".join(user.groups)}"' if user.groups else ""
    return f'{user.token},"{user.name}","{user.name}"{groups}\n'


def kubeconfig(server: str, ca_pem: bytes, token: str, *, user: str, namespace: str = "default") -> str:
    """A kubeconfig with one cluster, one user and one context, everything inline."""
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
    """Writes a file that only its owner reads."""
    path.touch(mode=0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path
