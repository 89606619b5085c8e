"""Kubeconfig files that are read directly, and files that need the full loader."""

import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kube.connect import NotConfigured, connect
from controller.kube.static_kubeconfig import static_kubeconfig
from rallypoint.local.apiserver import ApiServer
from rallypoint.local.apiserver.serving.certificates import identity

pytestmark = pytest.mark.looptime(False)


def config(cluster: dict[str, Any], user: dict[str, Any], **context: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **context}}],
        "current-context": "x",
    }


def written(folder: Path, content: Any) -> str:
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return str(path)


async def test_a_kubeconfig_of_local_mode_is_read(tmp_path: Path) -> None:
    server = ApiServer()
    shown = identity(datetime.now(UTC))
    await server.start(tls=shown.tls, authority=shown.authority)
    found = static_kubeconfig(written(tmp_path, server.kubeconfig()))
    url = server.url
    await server.stop()

    assert found is not None
    assert (found.server, found.token(), found.namespace) == (url, server.token, "default")
    assert isinstance(found.tls(), ssl.SSLContext)


def test_another_context(tmp_path: Path) -> None:
    content = config({"server": "http://a"}, {"token": "t"}, namespace="n")
    content["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "u", "namespace": "m"}})
    path = written(tmp_path, content)
    usual, other = static_kubeconfig(path), static_kubeconfig(path, "y")

    assert usual is not None
    assert other is not None
    assert (usual.namespace, other.namespace) == ("n", "m")
    assert static_kubeconfig(path, "z") is None


def test_a_slash_at_the_end_of_the_address_is_left_out(tmp_path: Path) -> None:
    found = static_kubeconfig(written(tmp_path, config({"server": "http://a/"}, {"token": "t"})))

    assert found is not None
    assert found.server == "http://a"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("no kubeconfig", id="something else"),
        pytest.param(config({"server": "http://a"}, {"exec": {"command": "login"}}), id="a plugin"),
        pytest.param(config({"server": "http://a"}, {"token": "t", "as": "b"}), id="impersonation"),
        pytest.param(
            config({"server": "https://a", "certificate-authority": "f"}, {"token": "t"}), id="another file"
        ),
        pytest.param(config({"server": "https://a"}, {"token": "t"}), id="no CA file"),
        pytest.param(config({"server": "http://a"}, {"token": ""}), id="no token"),
        pytest.param(config({"server": "http://a"}, {"token": "Basic dTpw"}), id="a name and a password"),
        pytest.param(
            config({"server": "https://a", "certificate-authority-data": "?"}, {"token": "t"}),
            id="a bad authority",
        ),
        pytest.param(
            {**config({"server": "http://a"}, {"token": "t"}), "current-context": "z"}, id="no context"
        ),
    ],
)
def test_files_that_are_left_to_the_loader(tmp_path: Path, content: Any) -> None:
    assert static_kubeconfig(written(tmp_path, content)) is None
    assert static_kubeconfig(str(tmp_path / "missing")) is None


async def test_a_new_token_is_read_with_the_next_login(tmp_path: Path) -> None:
    connection = await connect(written(tmp_path, config({"server": "http://a"}, {"token": "old"})))
    assert connection.renew is not None
    written(tmp_path, config({"server": "http://a"}, {"token": "new"}))
    assert connection.token() == "old"

    await connection.renew()

    assert connection.token() == "new"


async def test_an_unchanged_file_keeps_its_connections(tmp_path: Path) -> None:
    authority = identity(datetime.now(UTC)).authority
    server = ApiServer()
    shown = identity(datetime.now(UTC))
    await server.start(tls=shown.tls, authority=authority)
    connection = await connect(written(tmp_path, server.kubeconfig()))
    await server.stop()
    before = connection.tls()
    assert before is not None
    assert connection.renew is not None

    await connection.renew()

    assert connection.tls() is before


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(config({"server": "http://b"}, {"token": "t"}), id="another server"),
        pytest.param(config({"server": "http://a"}, {"exec": {"command": "login"}}), id="a plugin"),
        pytest.param("no kubeconfig", id="something else"),
    ],
)
async def test_a_file_that_becomes_another_sort_needs_a_restart(tmp_path: Path, content: Any) -> None:
    connection = static_kubeconfig(written(tmp_path, config({"server": "http://a"}, {"token": "t"})))
    assert connection is not None
    assert connection.renew is not None
    written(tmp_path, content)

    with pytest.raises(NotConfigured, match="restart the process"):
        await connection.renew()

    assert connection.token() == "t"


def test_a_self_contained_file_needs_no_library_of_logins(tmp_path: Path) -> None:
    path = written(tmp_path, config({"server": "http://a"}, {"token": "t"}))
    program = (
        "import asyncio, sys; from controller.kube.connect import connect; "
        f"print(asyncio.run(connect({path!r})).server, 'kubernetes_asyncio' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["http://a", "False"]
