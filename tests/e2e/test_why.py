"""``rallypoint why`` with real kubelets and the real scheduler."""

from typing import Any

import pytest

from rallypoint.testing.cluster.images import BASE
from rallypoint.testing.cluster.workloads import Workloads, job

MASTER = "stuck-master-0"
NOWHERE = {"image": "registry.local/nowhere:1"}
NO_VOLUME = {"name": "none", "configMap": {"name": "none"}}
GREEDY = {"image": BASE, "command": ["python", "-c", "print('working'); x = bytearray(256 * 1024 * 1024)"]}


def causes(workloads: Workloads) -> list[tuple[tuple[str, ...], str]]:
    """Whom and what the causes name, the root first, each with what was said last."""
    causes = workloads.why("PyTorchJob", "stuck")["causes"]
    return [
        (tuple(cause["about"]), f"{cause['text']}; {cause['quote']}") for cause in causes if cause["blocks"]
    ]


def first(workloads: Workloads, *words: str) -> bool:
    """Whether the first cause is the master's, and says all of these."""
    about, text = next(iter(causes(workloads)), ((), ""))
    return about == (MASTER,) and all(word in text for word in words)


@pytest.mark.parametrize(
    ("master", "words"),
    [
        pytest.param(NOWHERE, ["ErrImagePull: ", "registry.local/nowhere:1"], id="an image that is nowhere"),
        pytest.param(
            {
                "image": BASE,
                "volumeMounts": [{"name": "none", "mountPath": "/none"}],
                "pod": {"volumes": [NO_VOLUME]},
            },
            ["FailedMount: ", 'configmap "none" not found'],
            id="a volume that is nowhere",
        ),
        pytest.param(
            {"image": BASE, "resources": {"limits": {"nvidia.com/gpu": 8}}},
            ["Unschedulable: 0/2 nodes are available: ", "Insufficient nvidia.com/gpu"],
            id="GPUs that no node has",
        ),
        pytest.param(
            {"image": BASE, "command": ["sh", "-c", "echo no luck; exit 3"], "restartPolicy": "OnFailure"},
            ["container pytorch ended ", "exit code 3", "; no luck"],
            id="a program that fails each time",
        ),
        pytest.param(
            {"image": BASE, "command": ["nothing-of-that-name"], "restartPolicy": "OnFailure"},
            ["nothing-of-that-name", "not found"],
            id="a program that is nowhere",
        ),
    ],
)
def test_why_names_what_blocks_a_job(workloads: Workloads, master: dict[str, Any], words: list[str]) -> None:
    """The worker only waits for its master, so that comes after it."""
    worker = {"image": BASE, "command": ["true"]}
    workloads.apply(job("PyTorchJob", "stuck", {"Master": master, "Worker": worker}))

    workloads.wait("the cause", lambda: first(workloads, *words))


def test_why_names_the_pod_that_others_wait_for(workloads: Workloads) -> None:
    worker = {"image": BASE, "command": ["true"]}
    workloads.apply(job("PyTorchJob", "stuck", {"Master": NOWHERE, "Worker": {**worker, "replicas": 2}}))

    workloads.wait("both causes", lambda: len(causes(workloads)) == 2 and first(workloads, "nowhere"))

    about, text = causes(workloads)[1]
    assert about == ("stuck-worker-0", "stuck-worker-1")
    assert text == "running init container init-pytorch; waiting for master"


def test_why_names_the_first_failed_pod_and_its_exit(workloads: Workloads) -> None:
    limited = {**GREEDY, "resources": {"limits": {"memory": "64Mi"}}}
    waits = {"image": BASE, "command": ["sleep", "infinity"]}
    policy = {"cleanPodPolicy": "None"}
    workloads.apply(job("PyTorchJob", "stuck", {"Master": waits, "Worker": limited}, runPolicy=policy))

    workloads.wait_for("PyTorchJob", "stuck", "Failed")

    diagnosis = workloads.why("PyTorchJob", "stuck")
    assert (diagnosis["state"], diagnosis["causes"][1]["about"]) == ("Failed", ["stuck-worker-0"])
    assert "was the first to fail, on node-" in diagnosis["causes"][1]["text"]
    assert diagnosis["causes"][1]["text"].endswith("exit code 137, killed by SIGKILL (OOMKilled)")
    assert [phase["name"] for phase in diagnosis["phases"]][-1] == "Failed"
