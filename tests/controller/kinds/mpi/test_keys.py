"""The ssh keys of a job: generation and validation."""

import base64
import subprocess
from pathlib import Path
from typing import Any

import pytest

from controller.kinds.mpi.keys import new_pair, secret_problem
from controller.kinds.mpi.sshpods import PRIVATE, PUBLIC


def secret(**data: str | None) -> dict[str, Any]:
    """A Secret with a pair, and these texts over it; None leaves one out."""
    pair = new_pair() | {
        key: base64.b64encode(text.encode()).decode() for key, text in data.items() if text is not None
    }
    fields = {key: text for key, text in pair.items() if data.get(key, "") is not None}
    return {"metadata": {"name": "pi-ssh"}, "data": fields}


def test_openssh_reads_both_keys(tmp_path: Path) -> None:
    pair = {name: base64.b64decode(text) for name, text in new_pair().items()}
    path = tmp_path / "id_rsa"
    path.write_bytes(pair[PRIVATE])
    path.chmod(0o600)

    read = subprocess.run(["ssh-keygen", "-y", "-f", path], capture_output=True, check=True).stdout

    assert pair[PRIVATE].startswith(b"-----BEGIN EC PRIVATE KEY-----\n")
    assert pair[PUBLIC].startswith(b"ecdsa-sha2-nistp521 ")
    assert pair[PUBLIC].count(b" ") == 1
    assert read.split()[:2] == pair[PUBLIC].split()


def test_generated_pairs_differ() -> None:
    assert new_pair() != new_pair()


def test_a_generated_pair_is_valid() -> None:
    assert secret_problem(secret()) == ""


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_a_pair_of_ssh_keygen_is_valid(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "me@here", "-f", path], check=True)
    data = {PRIVATE: path.read_text(), PUBLIC: path.with_suffix(".pub").read_text()}

    assert secret_problem(secret(**data)) == ""


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({PRIVATE: None}, id="no private key"),
        pytest.param({PUBLIC: None}, id="no public key"),
        pytest.param({PRIVATE: ""}, id="an empty one"),
        pytest.param({PRIVATE: "mine"}, id="text that is no key"),
        pytest.param(
            {PRIVATE: "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"},
            id="a PEM block without a key",
        ),
        pytest.param({PUBLIC: "ecdsa-sha2-nistp521 AAAA"}, id="a public key of another pair"),
        pytest.param({PRIVATE: "x" * 100_000}, id="longer than any key"),
    ],
)
def test_an_invalid_pair_is_described_without_its_content(data: dict[str, str | None]) -> None:
    text = secret_problem(secret(**data))

    assert text.startswith('Secret "pi-ssh" does not hold a private key')
    assert text.endswith("delete the Secret to get a new key pair")
    assert "mine" not in text


def test_data_that_is_not_base64_is_invalid() -> None:
    broken = {"metadata": {"name": "pi-ssh"}, "data": {PRIVATE: "%%%", PUBLIC: "%%%"}}

    assert secret_problem(broken) != ""
