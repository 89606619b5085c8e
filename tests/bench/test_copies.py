"""Copies of a job as etcd stores them."""

import orjson

from api.meta import PODS
from api.v1.pytorchjob import RESOURCE as PYTORCH_JOBS
from bench.copies import ORIGINAL, copies, original

JOB_UID, POD_UID = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
JOB = {
    "metadata": {"name": ORIGINAL, "namespace": "bench", "uid": JOB_UID, "resourceVersion": "7"},
    "status": {"conditions": []},
}
POD = {
    "metadata": {
        "name": f"{ORIGINAL}-worker-0",
        "namespace": "bench",
        "uid": POD_UID,
        "resourceVersion": "9",
        "labels": {"training.kubeflow.org/job-name": ORIGINAL},
        "ownerReferences": [{"kind": "PyTorchJob", "name": ORIGINAL, "uid": JOB_UID}],
        "managedFields": [{"manager": "rallypoint-bench"}],
    }
}
ORIGINALS = [original(PYTORCH_JOBS, JOB), original(PODS, POD)]


def test_keys_are_those_of_the_api_server() -> None:
    keys = [key.decode() for key, _ in copies(ORIGINALS, jobs=3, namespaces=2)]

    assert keys == [
        "/registry/kubeflow.org/pytorchjobs/many-000/copied-000000",
        "/registry/pods/many-000/copied-000000-worker-0",
        "/registry/kubeflow.org/pytorchjobs/many-001/copied-000001",
        "/registry/pods/many-001/copied-000001-worker-0",
        "/registry/kubeflow.org/pytorchjobs/many-000/copied-000002",
        "/registry/pods/many-000/copied-000002-worker-0",
    ]


def test_a_copy_differs_in_names_namespace_and_uids() -> None:
    _, _, job, pod = (orjson.loads(value) for _, value in copies(ORIGINALS, jobs=2, namespaces=2))

    job_uid, pod_uid = job["metadata"]["uid"], pod["metadata"]["uid"]
    assert job == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "copied-000001", "namespace": "many-001", "uid": job_uid},
        "status": {"conditions": []},
    }
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "copied-000001-worker-0",
            "namespace": "many-001",
            "uid": pod_uid,
            "labels": {"training.kubeflow.org/job-name": "copied-000001"},
            "ownerReferences": [{"kind": "PyTorchJob", "name": "copied-000001", "uid": job_uid}],
            "managedFields": [{"manager": "rallypoint-bench"}],
        },
    }


def test_every_object_has_its_own_uid() -> None:
    uids = [orjson.loads(value)["metadata"]["uid"] for _, value in copies(ORIGINALS, jobs=3, namespaces=1)]

    assert len({*uids, JOB_UID, POD_UID}) == 8
