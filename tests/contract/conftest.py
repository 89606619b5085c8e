"""The embedded API server and a real kube-apiserver, with the same definitions and under the same tests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rallypoint.local.apiserver import ApiServer
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.http_trace import RawClient, Step
from tests.support.comparable import comparable
from tests.support.json_differences import differences

DEFINITIONS = [
    yaml.safe_load(Path(__file__).with_name(name).read_text()) for name in ("trains.yaml", "wagons.yaml")
]


@pytest.fixture(scope="session")
def real_server(control_plane: ControlPlane) -> dict[str, Any]:
    """The kubeconfig of the real server, once it serves trains and wagons."""
    control_plane.apply(*DEFINITIONS)
    config: dict[str, Any] = yaml.safe_load(control_plane.kubeconfig().read_text())
    return config


@pytest.fixture
async def embedded_server(namespace: str) -> AsyncIterator[ApiServer]:
    """The embedded server with trains and wagons, and with the namespace of the test."""
    server = ApiServer(crds=DEFINITIONS)
    await server.start()
    async with RawClient(server.url, server.token) as client:
        made = await client.send(Step("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}))
        assert made.code == 201
    yield server
    await server.stop()


@pytest.fixture
async def embedded(embedded_server: ApiServer) -> AsyncIterator[RawClient]:
    async with RawClient(embedded_server.url, embedded_server.token) as client:
        yield client


@pytest.fixture
async def real(real_server: dict[str, Any]) -> AsyncIterator[RawClient]:
    async with RawClient.from_kubeconfig(real_server) as client:
        yield client


@pytest.fixture(params=["embedded", "real"])
def client(request: pytest.FixtureRequest, embedded: RawClient, real: RawClient) -> RawClient:
    """Each server in turn, for tests that state the expected result themselves."""
    return embedded if request.param == "embedded" else real


class Both:
    """Sends the same requests to both servers and compares the responses."""

    def __init__(self, embedded: RawClient, real: RawClient, namespace: str) -> None:
        self._clients = (embedded, real)
        self._namespace = namespace

    async def agree(self, steps: Sequence[Step]) -> None:
        placed = [self._placed(step) for step in steps]
        ours, theirs = await asyncio.gather(*(client.run(placed) for client in self._clients))
        for i, (step, our, their) in enumerate(zip(placed, ours, theirs, strict=True), 1):
            about = f"step {i}: {step.method} {step.path}"
            assert (their.code, about) == (step.code, about), their.text
            assert (our.code, about) == (step.code, about), our.text
            real, embedded = (
                {"body": comparable(reply.body, step.ignore), "warnings": comparable(list(reply.warnings))}
                for reply in (their, our)
            )
            found = list(differences(real, embedded))
            assert not found, "\n".join([about, *map(str, found)])
            if their.body is None:
                assert our.text == their.text, about

    def _placed(self, step: Step) -> Step:
        fields = {name: getattr(step, name) for name in Step.__slots__}
        fields["path"] = step.path.replace("{ns}", self._namespace)
        fields["body"] = _named(step.body, self._namespace)
        return Step(**fields)


def _named(value: Any, namespace: str) -> Any:
    if isinstance(value, str):
        return value.replace("{ns}", namespace)
    if isinstance(value, dict):
        return {key: _named(item, namespace) for key, item in value.items()}
    if isinstance(value, list):
        return [_named(item, namespace) for item in value]
    return value


@pytest.fixture
def both(embedded: RawClient, real: RawClient, namespace: str) -> Both:
    return Both(embedded, real, namespace)
