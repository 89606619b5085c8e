"""The job of ``bench lost-nodes``."""

from api.v1.pytorchjob import PyTorchJob
from bench import lost_nodes
from controller.kind import Options
from controller.kinds.pytorch import PYTORCH
from controller.reconcile.plan import problems


def test_the_job_is_valid_and_its_worker_prefers_the_node_that_is_cut() -> None:
    document = lost_nodes.job_on("node-2", "node-1")

    job = PyTorchJob.model_validate(document)

    assert problems(PYTORCH, job, Options()) == []
    worker = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    preference = worker["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
    assert preference["preference"]["matchExpressions"][0]["values"] == ["node-2"]
