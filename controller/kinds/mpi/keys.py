"""The ssh key pair of a job's pods.

P-521 in PEM, which every OpenSSH and dropbear reads. Each job has one pair, which never changes. The library takes 7 MiB, so this module is
imported only when a job needs a pair.

Source: mpi-operator 0.8, pkg/controller/mpi_job_controller.go, newSSHAuthSecret.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from controller.kinds.mpi.sshpods import PRIVATE, PUBLIC

TYPE: Final = "kubernetes.io/ssh-auth"
MAX_KEY_CHARACTERS: Final = 32 * 1024
"""Longer keys are rejected unread."""


def new_pair() -> dict[str, str]:
    """Return the ``data`` of a Secret with a new pair. Takes less than a millisecond of CPU."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return {PRIVATE: _encoded(private), PUBLIC: _encoded(_line(key) + b"\n")}


def secret_problem(secret: Mapping[str, Any]) -> str:
    """Return why the pods cannot use the Secret, and what to do; empty if they can. The text contains no secret data."""
    data = secret.get("data") or {}
    if all(name in data and len(data[name]) <= MAX_KEY_CHARACTERS for name in (PRIVATE, PUBLIC)):
        try:
            key = _private(base64.b64decode(data[PRIVATE], validate=True))
            if base64.b64decode(data[PUBLIC], validate=True).split()[:2] == _line(key).split():
                return ""
        except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
            pass
    name = secret["metadata"]["name"]
    return f'Secret "{name}" does not hold a private key as {PRIVATE} and its public key as {PUBLIC}; delete the Secret to get a new key pair'


def _private(text: bytes) -> Any:
    is_ssh = b"OPENSSH PRIVATE KEY" in text
    load = serialization.load_ssh_private_key if is_ssh else serialization.load_pem_private_key
    return load(text, password=None)


def _line(key: Any) -> bytes:
    """Return the public key in the format of authorized_keys, without a comment."""
    line: bytes = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return line


def _encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()
