"""The key pair that a job's pods reach each other with by ssh.

P-521 in PEM, which every OpenSSH and dropbear reads. One pair a job, never changed. The library behind it takes 7 MiB, so nothing imports
this before there is a job that needs a pair.

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
"""Characters of a key that is looked into."""


def new_pair() -> dict[str, str]:
    """The ``data`` of a Secret with a new pair. Takes less than a millisecond of CPU."""
    key = ec.generate_private_key(ec.SECP521R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    return {PRIVATE: _encoded(private), PUBLIC: _encoded(_line(key) + b"\n")}


def secret_problem(secret: Mapping[str, Any]) -> str:
    """Why the pods cannot use that Secret, and what to do; empty if they can. Says nothing of what is in it."""
    data = secret.get("data") or {}
    if all(name in data and len(data[name]) <= MAX_KEY_CHARACTERS for name in (PRIVATE, PUBLIC)):
        try:
            key = _private(base64.b64decode(data[PRIVATE], validate=True))
            if base64.b64decode(data[PUBLIC], validate=True).split()[:2] == _line(key).split():
                return ""
        except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
            pass
    name = secret["metadata"]["name"]
    return f'Secret "{name}" does not hold a private key as {PRIVATE} and its public key as {PUBLIC}: delete it, and a new pair is made'


def _private(text: bytes) -> Any:
    is_ssh = b"OPENSSH PRIVATE KEY" in text
    load = serialization.load_ssh_private_key if is_ssh else serialization.load_pem_private_key
    return load(text, password=None)


def _line(key: Any) -> bytes:
    """The public key as authorized_keys has it, without comment."""
    line: bytes = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return line


def _encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()
