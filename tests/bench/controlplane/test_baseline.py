"""The objects of the baseline: create requests with other names of the same length."""

import orjson
import pytest

from bench.controlplane.baseline import as_created, renamed


def test_fields_of_the_server_are_removed() -> None:
    stored = {
        "metadata": {
            "name": "job-master-0",
            "labels": {"a": "b"},
            "ownerReferences": [{"uid": "1"}],
            "uid": "2",
            "resourceVersion": "3",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{}],
        },
        "spec": {"clusterIP": "None", "clusterIPs": ["None"], "selector": {"a": "b"}},
        "status": {"loadBalancer": {}},
    }

    assert orjson.loads(as_created(stored)) == {
        "metadata": {"name": "job-master-0", "labels": {"a": "b"}, "ownerReferences": [{"uid": "1"}]},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}},
    }


def test_renaming_keeps_the_size() -> None:
    body = b'{"metadata":{"name":"j1-0000-worker-0","labels":{"job-name":"j1-0000"}}}'

    again = renamed(body, "j1", "f1")

    assert again == b'{"metadata":{"name":"f1-0000-worker-0","labels":{"job-name":"f1-0000"}}}'
    with pytest.raises(ValueError, match="different lengths"):
        renamed(body, "j1", "baseline")
