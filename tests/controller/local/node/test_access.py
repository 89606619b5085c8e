"""The API server as a pod meets it: files at the place that SDKs know, variables, names, a certificate to trust."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controller.local.node.access import PATH, Access, with_mount
from controller.local.node.choice import Wanted
from controller.testing.bench import Bench, opened

pytestmark = pytest.mark.looptime(False)

ASK = f"""
import json, os, ssl, urllib.request
place = {PATH!r}
def read(name): return open(os.path.join(place, name)).read()
context = ssl.create_default_context(cafile=place + "/ca.crt")
hosts = [os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"], "kubernetes.default.svc"]
for host in hosts:
    path = "/api/v1/namespaces/" + read("namespace") + "/pods/" + os.uname().nodename
    request = urllib.request.Request("https://" + host + path, headers={{"Authorization": "Bearer " + read("token")}})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}), urllib.request.HTTPSHandler(context=context))
    print(json.load(opener.open(request))["metadata"]["name"])
"""


@pytest.fixture
async def bench(tmp_path: Path, isolation: Wanted) -> AsyncIterator[Bench]:
    async with opened(tmp_path, isolation) as bench:
        yield bench


async def test_a_pod_reads_itself(bench: Bench) -> None:
    """Only with a network of its own: elsewhere nothing is promised that a program could not find."""
    if bench.node.isolation.has_network:
        await bench.pod("a", "python", "-c", ASK)
        await bench.over("a")
        assert await bench.log("a") == "a\na\n"
    else:
        await bench.pod("a", "sh", "-c", "env | grep KUBERNETES_SERVICE; ls /var/run/secrets")
        await bench.over("a")
        assert "KUBERNETES_SERVICE" not in await bench.log("a")


async def test_a_pod_that_wants_no_token(bench: Bench) -> None:
    await bench.pod("a", "sh", "-c", f"ls {PATH}", spec={"automountServiceAccountToken": False})
    await bench.over("a")

    assert "token" not in await bench.log("a")


async def test_a_token_at_another_place(bench: Bench) -> None:
    sources = [{"serviceAccountToken": {"path": "vault", "audience": "x"}}]
    await bench.pod(
        *("a", "sh", "-c", "cat /nowhere-else/vault"),
        volumeMounts=[{"name": "t", "mountPath": "/nowhere-else"}],
        spec={"volumes": [{"name": "t", "projected": {"sources": sources}}]},
    )
    await bench.over("a")

    assert len(await bench.log("a")) > 20


def test_what_a_container_has_at_that_place_stays() -> None:
    own = {"name": "main", "volumeMounts": [{"name": "mine", "mountPath": f"{PATH}/"}]}

    assert with_mount(own) == own


def test_variables_are_those_of_the_service() -> None:
    told = Access("t0ken", b"", "10.244.0.1").variables()

    assert told["KUBERNETES_SERVICE_HOST"] == "10.244.0.1"
    assert told["KUBERNETES_SERVICE_PORT"] == told["KUBERNETES_SERVICE_PORT_HTTPS"] == "443"
    assert told["KUBERNETES_PORT"] == "tcp://10.244.0.1:443"
    assert Access("t0ken", b"", "").variables() == {}
    assert "t0ken" not in repr(Access("t0ken", b"", ""))
