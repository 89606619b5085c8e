"""The logs of pods that may be gone: which pods are a job's, and which folder a kubeconfig names."""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rallypoint.local.log_archive import (
    DEFAULT_CONTAINER,
    POD_FILE,
    LogArchive,
    container_names,
    default_container,
    folder_of_kubeconfig,
    with_extension,
)
from rallypoint.local.node.streams.logs import Log, Logs

JOB_LABEL = {"training.kubeflow.org/job-name": "j"}


def pod(name: str, second: int, *, kind: str = "MPIJob", uid: str = "job", **metadata: Any) -> dict[str, Any]:
    owner = {"kind": kind, "name": "j" if kind == "MPIJob" else "j-launcher", "uid": uid, "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"{name}-{second}",
            "creationTimestamp": f"2026-01-01T00:00:{second:02}Z",
            "ownerReferences": [owner],
            "labels": JOB_LABEL,
            **metadata,
        },
        "spec": {
            "initContainers": [{"name": "init", "image": "x"}],
            "containers": [{"name": "main", "image": "x"}],
        },
    }


@pytest.fixture
def archive(tmp_path: Path) -> LogArchive:
    """Logs of two jobs with the name ``j``, of which the second one has UID ``job``, and of pods of others."""
    logs = Logs(tmp_path)
    for manifest in (
        pod("j-launcher-old", 1, kind="Job", uid="old batch"),
        pod("j-worker-0", 1, uid="old"),
        pod("j-launcher-new", 11, kind="Job", uid="batch"),
        pod("j-worker-0", 11),
        pod("j-worker-0", 12),
        pod("other", 12, ownerReferences=[]),
        pod("j-worker-0", 12, namespace="team"),
        pod("k-launcher-x", 13, kind="Job", labels={**JOB_LABEL, "training.kubeflow.org/job-name": "k"}),
    ):
        for attempt in (0, 1, 10):
            logs.open(manifest, "main", attempt).close()
    return LogArchive(tmp_path)


def uids(archive: LogArchive, **job: Any) -> list[str]:
    metadata = {"uid": "job", "creationTimestamp": "2026-01-01T00:00:10Z", **job}
    return [pod.uid for pod in archive.pods_of_job("default", "MPIJob", "j", {"metadata": metadata})]


def test_pods_of_a_job_directly_and_through_a_batch_job(archive: LogArchive) -> None:
    assert uids(archive) == ["j-launcher-new-11", "j-worker-0-11", "j-worker-0-12"]


def test_pods_of_the_newest_job_of_a_name(archive: LogArchive) -> None:
    found = archive.pods_of_job("default", "MPIJob", "j")

    assert [pod.uid for pod in found] == ["j-launcher-new-11", "j-worker-0-11", "j-worker-0-12"]


def test_runs_are_in_order(archive: LogArchive) -> None:
    found = archive.pods_of_job("team", "MPIJob", "j")

    assert [run.name for pod in found for run in pod.runs("main")] == ["0.log", "1.log", "10.log"]
    assert [container_names(pod) for pod in found] == [["init", "main"]]


def test_an_unreadable_record_is_left_out(archive: LogArchive) -> None:
    for file in archive.folder.glob("default_*/pod.json"):
        file.write_bytes(b"{")

    assert archive.pods("default") == []
    assert archive.pods("none") == []


CONTEXTS = [{"name": "a", "context": {"cluster": "a"}}, {"name": "b", "context": {"cluster": "b"}}]


def test_a_kubeconfig_names_the_folder(tmp_path: Path) -> None:
    config = with_extension({"contexts": CONTEXTS, "current-context": "a"}, tmp_path)

    assert folder_of_kubeconfig(config, "") == folder_of_kubeconfig(config, "b") == tmp_path
    assert CONTEXTS[0]["context"] == {"cluster": "a"}


@pytest.mark.parametrize(
    "config", [None, {}, {"contexts": CONTEXTS, "current-context": "a"}, {"contexts": 1}]
)
def test_other_kubeconfigs_name_none(config: Any) -> None:
    assert folder_of_kubeconfig(config, "") is None
    assert folder_of_kubeconfig(config, "c") is None


def test_of_the_annotations_only_the_default_container_is_kept(tmp_path: Path) -> None:
    annotations = {DEFAULT_CONTAINER: "main", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    Logs(tmp_path).open(pod("j-worker-0", 1, annotations=annotations), "main", 0).close()
    (archived,) = LogArchive(tmp_path).pods("default")

    assert archived.manifest["metadata"]["annotations"] == {DEFAULT_CONTAINER: "main"}
    assert sorted(file.name for file in archived.folder.iterdir()) == ["main", POD_FILE]


def test_the_last_status_of_a_deleted_pod_is_kept_without_its_environment(tmp_path: Path) -> None:
    """Also of one of a job that never had a log, as one that waited for a node."""
    logs = Logs(tmp_path)
    ran, waited, other = pod("j-worker-0", 1), pod("j-worker-1", 2), pod("other", 3, labels={})
    ran["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "secret"}]
    ran["spec"]["nodeName"] = "here"
    logs.open(ran, "main", 0).close()
    (before,) = LogArchive(tmp_path).pods("default")
    status = {"containerStatuses": [{"name": "main", "restartCount": 2}]}
    for manifest in (ran, waited, other):
        logs.record_deletion({**manifest, "status": status})

    assert before.last_state() is not None
    archived = LogArchive(tmp_path).pods("default")
    assert [(found.name, found.has_logs) for found in archived] == [
        ("j-worker-0", True),
        ("j-worker-1", False),
    ]
    states = [found.last_state() for found in archived]
    assert [state and state[0]["status"] for state in states] == [status, status]
    assert "secret" not in str(states)
    assert [state and state[0]["spec"].get("nodeName") for state in states] == ["here", None]


def test_the_times_of_runs_that_have_ended(tmp_path: Path) -> None:
    logs, manifest = Logs(tmp_path), pod("j-worker-0", 1)
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for attempt in range(3):
        started = start + timedelta(seconds=10 * attempt)
        log = logs.open(manifest, "main", attempt, started)
        logs.write(manifest, "main", log, b"said\n", started + timedelta(seconds=3))
        if attempt < 2:
            logs.close(manifest, "main", log)
            os.utime(log.path.with_suffix(".times"), (0, (started + timedelta(seconds=4.5)).timestamp()))
    (archived,) = LogArchive(tmp_path).pods("default")

    assert [
        tuple((time - start).total_seconds() for time in times) for times in archived.ended_runs("main")
    ] == [(0, 4), (10, 14)]
    logs.discard(manifest)
    (line,) = Log(archived.runs("main")[1], ended=True).timed_tail(1, 100)
    assert line == (start + timedelta(seconds=13), b"said\n")


def test_a_pod_that_exists_has_no_last_status(archive: LogArchive) -> None:
    assert [pod.last_state() for pod in archive.pods("team")] == [None]


@pytest.mark.parametrize("container", ["..", "../other_x_y/main", "/etc", "", "none"])
def test_only_containers_of_the_pod_have_runs(archive: LogArchive, container: str) -> None:
    (pod, *_) = archive.pods("default")
    (pod.folder.parent / "0.log").write_text("not the pod's")

    assert pod.runs(container) == []


def test_deleted_folders_are_discarded(archive: LogArchive) -> None:
    everything = archive.pods("")
    (ours,) = archive.pods("team")
    shutil.rmtree(ours.folder)

    assert archive.pods("team") == []
    assert len(archive._read) == len(everything) - 1
    assert archive.pods("") == [pod for pod in everything if pod is not ours]


def test_known_pods_are_not_read_again(archive: LogArchive) -> None:
    before = archive.pods("default")
    for pod in before:
        (pod.folder / POD_FILE).unlink()

    assert archive.pods("default") == before


def test_the_default_container() -> None:
    found = {
        "metadata": {"annotations": {DEFAULT_CONTAINER: "b"}},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
    }

    assert default_container(found) == "b"
    assert default_container({**found, "metadata": {"annotations": {DEFAULT_CONTAINER: "c"}}}) == ""
    assert default_container({**found, "metadata": {}}) == ""
