"""The credentials of a control plane: tokens, kubeconfig and certificates."""

import base64
import csv
import ssl
from pathlib import Path

import yaml

from rallypoint.testing.controlplane.access import (
    User,
    administrator,
    kubeconfig,
    token_file,
    write_private,
)
from rallypoint.testing.controlplane.certificates import Authority


def test_the_token_file_has_a_line_per_user_and_no_empty_group() -> None:
    users = [administrator("admin"), User("operator"), User("both", groups=("a", "b"))]

    rows = list(csv.reader(token_file(users).splitlines()))

    assert [row[1:] for row in rows] == [
        ["admin", "admin", "system:masters"],
        ["operator", "operator"],
        ["both", "both", "a,b"],
    ]
    assert len({row[0] for row in rows}) == 3


def test_a_kubeconfig_contains_server_user_and_authority() -> None:
    written = kubeconfig("https://127.0.0.1:1", b"PEM", "secret", user="operator", namespace="there")

    config = yaml.safe_load(written)
    assert config["current-context"] == "operator"
    assert config["contexts"][0]["context"] == {
        "cluster": "loopback",
        "user": "operator",
        "namespace": "there",
    }
    assert config["users"] == [{"name": "operator", "user": {"token": "secret"}}]
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"PEM"


def test_the_repr_of_a_user_hides_the_token() -> None:
    user = User("operator")

    assert user.token not in repr(user)


def test_private_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = write_private(tmp_path / "key", "secret")

    assert path.read_text() == "secret"
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_issued_certificate_is_trusted_through_its_authority(tmp_path: Path) -> None:
    """As strictly as Python 3.13 and newer look at it."""
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.path))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(pair.certificate, pair.key)
    client = ssl.create_default_context(cafile=str(authority.path))
    client.load_cert_chain(pair.certificate, pair.key)
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT

    assert shake_hands(client, server, "127.0.0.1")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> bool:
    """Raises ``ssl.SSLError`` when one does not accept the other."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    waiting = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
    return not waiting
