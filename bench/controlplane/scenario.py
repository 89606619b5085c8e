"""What is submitted: scenarios are data."""

from dataclasses import dataclass
from typing import Any

from api.meta import Resource
from api.v1 import pytorchjob

RESOURCE: Resource = pytorchjob.RESOURCE
LEADER = "master-0"
"""The replica whose end is the end of a job, as it ends the name of its pod."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """``jobs`` PyTorchJobs submitted together, each of one master and ``replicas`` - 1 workers."""

    jobs: int
    replicas: int

    @property
    def name(self) -> str:
        return f"{self.jobs}x{self.replicas}"

    @property
    def pods(self) -> int:
        return self.jobs * self.replicas

    def job_names(self, run: str) -> list[str]:
        """The names of a run's jobs; all runs of a scenario have names of one length."""
        return [f"{run}-{index:04}" for index in range(self.jobs)]


SCENARIOS = {scenario.name: scenario for scenario in (Scenario(1, 8), Scenario(1, 64), Scenario(1, 256))}
"""Those that are measured unless others are named."""


def parse(name: str) -> Scenario:
    """The scenario of a name such as ``1x64``. Raises ValueError for other texts and for nothing to submit."""
    jobs, _, replicas = name.partition("x")
    scenario = Scenario(int(jobs), int(replicas))
    if scenario.jobs < 1 or scenario.replicas < 1:
        raise ValueError(f"{name}: at least one job of one replica")
    return scenario


def manifest(scenario: Scenario, name: str, nodes: tuple[str, str]) -> dict[str, Any]:
    """One job; the master is bound to the first node, the workers to the second, so that no scheduler takes part."""
    roles = {"Master": _role(1, nodes[0])}
    if scenario.replicas > 1:
        roles["Worker"] = _role(scenario.replicas - 1, nodes[1])
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def _role(replicas: int, node: str) -> dict[str, Any]:
    container = {"name": "pytorch", "image": "train:1", "command": ["train"]}
    return {
        "replicas": replicas,
        "restartPolicy": "OnFailure",
        "template": {"spec": {"nodeName": node, "containers": [container]}},
    }
