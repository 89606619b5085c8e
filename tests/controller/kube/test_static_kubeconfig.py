"""Kubeconfig files that are read directly, and files that need the full loader."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

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
