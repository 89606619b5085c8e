"""The job under which a pod is shown, and its name."""

from typing import Any

import pytest

from rallypoint.local.manifest import Row
from rallypoint.local.progress import Progress, short_name

JOB = {"kind": "MPIJob", "metadata": {"namespace": "ml", "name": "pi", "uid": "job"}, "status": {}}


def pod(name: str, owner: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    meta = {"namespace": "ml", "name": name, "uid": name, "ownerReferences": [owner], **metadata}
    return {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Running"}}


def by_batch(job: str = "pi", namespace: str = "ml") -> dict[str, Any]:
    """A pod that the controller of batch Jobs has made."""
    owner = {"kind": "Job", "name": f"{job}-launcher", "uid": "batch", "controller": True}
    marks = {"training.kubeflow.org/job-name": job}
    names = {"generateName": f"{job}-launcher-", "labels": marks, "namespace": namespace}
    return pod(f"{job}-launcher-x7k2p", owner, **names)


OWN = pod("pi-worker-0", {"kind": "MPIJob", "name": "pi", "uid": "job", "controller": True})


@pytest.mark.parametrize(
    ("manifest", "is_ours"),
    [
        pytest.param(OWN, True, id="its own"),
        pytest.param(pod("pi-worker-0", {"uid": "other", "controller": True}), False, id="another job's"),
        pytest.param(pod("pi-worker-0", {"uid": "job"}), False, id="whose controller it is not"),
        pytest.param(by_batch(), True, id="its batch Job's"),
        pytest.param(by_batch("e"), False, id="a batch Job's of another job"),
        pytest.param(by_batch(namespace="other"), False, id="a batch Job's in another namespace"),
    ],
)
def test_the_job_of_a_pod(manifest: dict[str, Any], is_ours: bool) -> None:
    progress = Progress(several=False)
    progress.add("MPIJob", JOB)

    assert (progress.job_of(manifest) is not None) is is_ours


def test_the_short_name_of_a_pod() -> None:
    progress = Progress(several=True)
    progress.add("MPIJob", JOB)
    job = progress.jobs["job"]
    for manifest in (OWN, by_batch()):
        meta = manifest["metadata"]
        progress.update_pod(None, Row("ml", meta["name"], meta["uid"], 1, manifest))

    assert [short_name(job, shown) for shown in (OWN, by_batch())] == ["worker-0", "launcher"]
    assert [progress.prefix(job, shown.short) for shown in job.rows] == ["pi/launcher", "pi/worker-0"]
