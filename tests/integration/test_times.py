"""Times in a job's status: the controller parses every time that a real kube-apiserver accepts."""

from itertools import product
from pathlib import Path

import orjson
import pytest

from api.job import JobStatus
from api.v1.pytorchjob import RESOURCE
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from controller.kube.errors import Invalid
from rallypoint.testing.controlplane import ControlPlane

_DATES = ("2026-01-01", "0000-02-29", "0001-01-01", "2026-02-30", "9999-12-31", "10000-01-01", "-0001-01-01")
_SEPARATORS = ("T", "t", " ", "")
_CLOCKS = ("00:00:00", "23:59:59", "23:59:60", "24:00:00", "12:60:00", "12:00", "1:00:00")
_FRACTIONS = ("", ".5", ".123456789012", ",5", "x5", "é5", "\n5", "5", "12345678", ".", "t5", ".٣")
_ZONES = (
    "Z",
    "z",
    "-00:00",
    "+14:00",
    "-14:00",
    "+24:00",
    "+99:99",
    "+0100",
    "+1:00",
    "",
    "Ztail",
    "ZTtail\n",
)
_TEXTS = [
    *map("".join, product(_DATES, _SEPARATORS, ["12:00:00"], _ZONES)),
    *map("".join, product(["2026-01-01"], "Tt", _CLOCKS, _FRACTIONS, _ZONES)),
    *("", "now", "T", "1767225600", "2026-01-01", " 2026-01-01T12:00:00Z", "٢٠٢٦-01-01T12:00:00Z"),
]
_ACCEPTED = {
    "0000-01-01T00:00:00Z",
    "2026-01-01t12:00:00z",
    "2026-01-01T12:00:00+14:00",
    "2026-01-01T12:00:00+24:00",
    "2026-01-01T12:00:00.123456789012Z",
    "2026-01-01T12:00:0012345678Z",
    "9999-12-31T23:59:59-14:00",
}
"""Some times that the server certainly accepts, so the test notices if it checks nothing."""


async def test_every_time_that_the_server_accepts_is_parsed(
    control_plane: ControlPlane, crds: list[Path], namespace: str
) -> None:
    """One write of as many conditions as there are times: the server names each one that it does not take."""
    texts = sorted({*_TEXTS, *_ACCEPTED})
    template = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}
    job = {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": "job"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {"template": template}}},
    }
    conditions = [{"type": "Created", "status": "True", "lastTransitionTime": text} for text in texts]
    change = orjson.dumps({"status": {"conditions": conditions}})
    async with Client(await from_kubeconfig(str(control_plane.kubeconfig()))) as client:
        await client.create(RESOURCE, namespace, orjson.dumps(job))
        with pytest.raises(Invalid) as refused:
            await client.patch(RESOURCE, namespace, "job", change, subresource="status")

    # Kubernetes 1.29 leaves out where the field begins.
    refused_fields = {path.removeprefix("status.") for path, _ in refused.value.causes}
    accepted = {
        text
        for number, text in enumerate(texts)
        if f"conditions[{number}].lastTransitionTime" not in refused_fields
    }

    assert len(accepted) < len(texts)
    assert accepted >= _ACCEPTED
    assert [text for text in accepted if not _is_read(text)] == []


def _is_read(text: str) -> bool:
    try:
        JobStatus.model_validate({"startTime": text})
    except ValueError:
        return False
    return True
