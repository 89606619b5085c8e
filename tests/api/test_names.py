"""Names and labels of children: byte for byte what users, SDKs and Kueue select on."""

from api.names import child_labels, child_name, role_selector


def test_a_child_is_named_after_job_role_and_index() -> None:
    assert child_name("bert", "worker", 12) == "bert-worker-12"


def test_a_slash_becomes_a_dash() -> None:
    assert child_name("a/b", "worker", 0) == "a-b-worker-0"


def test_the_labels_of_a_child() -> None:
    assert child_labels("pytorchjob-controller", "bert", "worker", 1) == {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "bert",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }


def test_the_selector_of_a_role_has_sorted_keys() -> None:
    assert role_selector("pytorchjob-controller", "bert", "worker") == (
        "training.kubeflow.org/job-name=bert,"
        "training.kubeflow.org/operator-name=pytorchjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    )
