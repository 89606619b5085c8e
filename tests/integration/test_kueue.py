"""Jobs of every kind under Kueue: suspended, admitted, evicted, admitted again and finished.

At the end the test checks invariants over all changes that two watches have reported.
"""

import asyncio
import itertools
import random
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import yaml

from api import labels
from api.meta import PODS
from api.names import child_name
from controller.kind import ReplicaKind
from controller.kinds import DEFAULT
from controller.kube.client import Client
from controller.kube.connect import from_kubeconfig
from rallypoint.testing import controlplane
from rallypoint.testing.controlplane import ControlPlane
from rallypoint.testing.service import Service, in_cluster_service, install
from tests.support.history import History, record_history
from tests.support.invariants import has
from tests.support.kueue import TOPOLOGY_GATE, Flavor, Kind, Kueue, Object, Workload, is_active

STAGES = Path(controlplane.__file__).parent / "stages.yaml"
TIMES = 20
AT_ONCE = 50
"""Jobs; most of a life is waiting."""
LONGEST_SECONDS = 60.0
"""Of anything that is waited for."""
GOODBYE_SECONDS = 0.1
"""A closed TLS connection is gone some turns of the loop later."""

OWN: Object = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "mine"}},
    "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "old", "operator": "Exists"}]},
}
"""What the user's templates say where Kueue has a say, too."""
SPOT = Flavor(
    labels={"kueue.x-k8s.io/podset": "all", "pool": "spot"},
    annotations={"kueue.x-k8s.io/workload": "first", "spot": "yes"},
    node_selector={"instance": "spot", "zone": "a"},
    tolerations=({"key": "spot", "operator": "Exists", "effect": "NoSchedule"},),
    gates=(TOPOLOGY_GATE,),
)
RESERVED = Flavor(
    labels={"kueue.x-k8s.io/podset": "all", "pool": "reserved"},
    annotations={"kueue.x-k8s.io/workload": "second"},
    node_selector={"instance": "reserved"},
    tolerations=({"key": "reserved", "operator": "Exists", "effect": "NoSchedule"},),
)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Generator[ControlPlane]:
    """One where deleted pods stay until the test lets them go: kwok deletes by name, twice, which may be the next pod of that name."""
    stages = tmp_path_factory.mktemp("kwok") / "stages.yaml"
    remaining = [
        document
        for document in yaml.safe_load_all(STAGES.read_text())
        if document["metadata"]["name"] != "pod-gone"
    ]
    stages.write_text(yaml.safe_dump_all(remaining))
    with ControlPlane(nodes=1, stages=stages) as plane:
        yield plane


@pytest.fixture(scope="module")
def operator(control_plane: ControlPlane) -> Generator[Service]:
    install(control_plane)
    with in_cluster_service(control_plane) as running:
        yield running


@contextmanager
def seeded() -> Generator[random.Random]:
    """Other delays each time; a failure says which."""
    seed = secrets.randbits(32)
    try:
        yield random.Random(seed)
    except BaseException as error:
        error.add_note(f"seed: {seed}")
        raise


def sizes(kind: Kind) -> dict[str, int]:
    """Every role that a job of the kind can have at once."""
    left_out = kind.alternative_roles[1:]
    return {name: 2 if name == "Worker" else 1 for name in kind.role_names if name not in left_out}


def job(kind: Kind, name: str) -> Object:
    template = {**OWN, "spec": {**OWN["spec"], "containers": [{"name": kind.container, "image": "x"}]}}
    specs = {role: {"replicas": count, "template": template} for role, count in sizes(kind).items()}
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    spec = {kind.replicas_field: specs, "runPolicy": {}}
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": metadata,
        "spec": spec,
    }


@dataclass
class Life:
    """One job from its creation to its end, as Kueue and chance will have it."""

    kind: Kind
    name: str
    kueue: Kueue
    history: History
    chance: random.Random
    evicted_early: bool = False
    """Whether it was evicted before all its pods ran."""

    async def live(self) -> None:
        await self.kueue.create(self.kind, job(self.kind, self.name))
        await self.until("Suspended", lambda: self.is_("Suspended"))
        await self.pause()
        first, second = self.chance.sample([SPOT, RESERVED], 2)
        await self.kueue.admit(self.now, first)
        await self.until("the news of its admission", lambda: self.is_at(2))
        self.evicted_early = self.chance.random() < 0.3
        if not self.evicted_early:
            await self.until("Running", lambda: self.runs(2))
        await self.pause()
        await self.kueue.evict(self.now)
        await self.until("no activity", lambda: self.is_at(3) and not is_active(self.now))
        await self.pause()
        await self.kueue.admit(self.now, second)
        await self.until("Running again", lambda: self.runs(4))
        await self.pause()
        for pod in self.chance.sample(self.pods, len(self.pods)):
            await self.kueue.end(pod)
            await self.pause(0.1)
        await self.until("Succeeded", lambda: self.is_("Succeeded"))

    @property
    def now(self) -> Object:
        return self.history.now[self.kind.resource.kind, self.name]

    @property
    def pods(self) -> list[str]:
        return [
            child_name(self.name, role.lower(), at)
            for role, count in sizes(self.kind).items()
            for at in range(count)
        ]

    def is_(self, condition: str) -> bool:
        return (self.kind.resource.kind, self.name) in self.history.now and has(self.now, condition)

    def is_at(self, generation: int) -> bool:
        return bool(self.now["metadata"]["generation"] >= generation)

    def runs(self, generation: int) -> bool:
        return self.is_at(generation) and self.is_("Running") and active(self.now) == sizes(self.kind)

    async def until(self, what: str, question: Callable[[], bool]) -> None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await self.history.until(what, question)
        except TimeoutError as error:
            there = [pod for pod in self.pods if (PODS.kind, pod) in self.history.now]
            raise TimeoutError(
                f"{self.name}: waited for {what}; pods: {there}; job: {self.now['metadata']['generation'], self.now['spec']['runPolicy'], self.now['status']}"
            ) from error

    async def pause(self, longest_seconds: float = 0.5) -> None:
        await asyncio.sleep(self.chance.uniform(0, longest_seconds))


def active(job: Object) -> dict[str, int]:
    roles = job.get("status", {}).get("replicaStatuses") or {}
    return {role: item["active"] for role, item in roles.items() if item.get("active")}


def reaches(history: History, at: int) -> bool:
    return len(history.changes) > at


async def bind_all(history: History, kueue: Kueue) -> None:
    """Let every new pod get to a node, and every deleted one go."""
    async with asyncio.TaskGroup() as group:
        for at in itertools.count():
            await history.until("a change", partial(reaches, history, at))
            type_, obj = history.changes[at]
            if obj["kind"] != PODS.kind:
                continue
            if type_ == "ADDED":
                group.create_task(kueue.bind(obj))
            elif type_ == "MODIFIED" and obj["metadata"].get("deletionTimestamp"):
                group.create_task(kueue.finish_deletion(obj))


@asynccontextmanager
async def said_goodbye() -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await asyncio.sleep(GOODBYE_SECONDS)


async def live_all(
    plane: ControlPlane, namespace: str, chance: random.Random
) -> tuple[list[Life], History, Kueue]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def run_life(life: Life) -> None:
        async with slots:
            await life.live()

    connection = await from_kubeconfig(str(plane.kubeconfig()))
    kinds = cast("tuple[Kind, ...]", [kind for kind in DEFAULT if isinstance(kind, ReplicaKind)])
    resources = (PODS, *(kind.resource for kind in kinds))
    async with (
        said_goodbye(),
        Client(connection, user_agent="kueue") as client,
        record_history(client, namespace, resources) as history,
        asyncio.TaskGroup() as group,
    ):
        kueue = Kueue(client, namespace, chance)
        placing = group.create_task(bind_all(history, kueue))
        lives = [
            Life(kind, f"{kind.framework}-{at}", kueue, history, random.Random(chance.random()))
            for at in range(TIMES)
            for kind in kinds
        ]
        await asyncio.gather(*map(run_life, lives))
        await asyncio.sleep(2)  # for what should not happen any more
        placing.cancel()
    return lives, history, kueue


@dataclass
class Moment:
    """One event of a job or of its pods, and what was there then."""

    type: str
    subject: Object
    job: Object
    pods: dict[str, Object]

    @property
    def generation(self) -> int:
        return int(self.job["metadata"]["generation"])

    @property
    def new_pod(self) -> Object | None:
        return self.subject if self.type == "ADDED" and self.subject["kind"] == PODS.kind else None

    @property
    def holds_quota(self) -> bool:
        return is_active(self.job)


def moments(life: Life, history: History) -> list[Moment]:
    """In the order of the API server: versions are the revisions of its one store."""
    mine = [(type_, obj) for type_, obj in history.changes if is_of_job(obj, life)]
    mine.sort(key=lambda change: int(change[1]["metadata"]["resourceVersion"]))
    job: Object = {}
    pods: dict[str, Object] = {}
    made: list[Moment] = []
    for type_, obj in mine:
        if obj["kind"] != PODS.kind:
            job = obj
        elif type_ == "DELETED":
            pods = {name: pod for name, pod in pods.items() if name != obj["metadata"]["name"]}
        else:
            pods = {**pods, obj["metadata"]["name"]: obj}
        made.append(Moment(type_, obj, job, pods))
    return made


def is_of_job(obj: Object, life: Life) -> bool:
    meta = obj["metadata"]
    if obj["kind"] == PODS.kind:
        return bool(meta["labels"].get(labels.JOB_NAME) == life.name)
    return bool(meta["name"] == life.name)


def check_spec(workload: Workload, moment: Moment) -> None:
    """Nobody but Kueue writes the job, its status apart, and Kueue finds what it wants there."""
    meta = moment.job["metadata"]
    assert moment.job["spec"] == workload.specs[moment.generation - 1]
    assert meta["labels"] == {"kueue.x-k8s.io/queue-name": "main"}
    assert {"annotations", "finalizers", "ownerReferences"}.isdisjoint(meta)
    for entry in meta["managedFields"]:
        assert entry["manager"] == "kueue" or entry.get("subresource") == "status"
    assert workload.is_equivalent(moment.job)


def check_new_pod(life: Life, workload: Workload, pod: Object, generation: int) -> None:
    """It says what was admitted last, and nothing of what was admitted before; Kueue finds it, and its rank.

    A create that was under way at an early eviction may come late; such a pod goes again.
    """
    meta, spec = pod["metadata"], pod["spec"]
    admitted = {flavor.labels["pool"]: at for at, flavor in workload.flavors.items()}[meta["labels"]["pool"]]
    assert admitted == (2 if generation < 4 else 4) or (life.evicted_early and admitted == 2)
    flavor = workload.flavors[admitted]
    role = next(role for role in sizes(life.kind) if role.lower() == meta["labels"][labels.REPLICA_TYPE])
    template = flavor.apply_to(workload.pod_sets[role][1])
    assert meta["labels"][labels.OPERATOR_NAME] == f"{life.kind.resource.singular}-controller"
    assert child_name(life.name, role.lower(), int(meta["labels"][labels.REPLICA_INDEX])) == meta["name"]
    own = {
        key: value for key, value in meta["labels"].items() if not key.startswith("training.kubeflow.org/")
    }
    assert own == template["metadata"]["labels"]
    assert meta["annotations"] == template["metadata"]["annotations"]
    assert spec["nodeSelector"] == template["spec"]["nodeSelector"]
    assert spec.get("schedulingGates") == template["spec"].get("schedulingGates")
    given = [
        toleration
        for toleration in spec["tolerations"]
        if not toleration["key"].startswith("node.kubernetes.io/")
    ]
    assert given == template["spec"]["tolerations"]


def check_quota(life: Life, moments: list[Moment]) -> None:
    """It is given back by pods that are gone, once, and nothing takes it again before Kueue says so.

    An early eviction may find no pod that counts, or pods whose Running is not yet reported, and may be over before the controller has
    looked.
    """
    assert not any(moment.pods or moment.holds_quota for moment in moments if moment.generation == 1)
    evicted = [moment for moment in moments if moment.generation == 3]
    suspended = [moment for moment in evicted if has(moment.job, "Suspended")]
    assert suspended or life.evicted_early
    assert not any(moment.new_pod for moment in suspended)
    if not life.evicted_early:
        active_counts = [sum(active(moment.job).values()) for moment in suspended]
        assert active_counts == sorted(active_counts, reverse=True)
        released = next(moment for moment in evicted if not moment.holds_quota)
        assert not [name for name, pod in released.pods.items() if pod["status"]["phase"] == "Running"]


def check_end(moments: list[Moment]) -> None:
    """Succeeded once and for all."""
    ends = [has(moment.job, "Succeeded") for moment in moments]
    assert ends == sorted(ends)
    assert ends[-1]
    assert not any(has(moment.job, "Failed") for moment in moments)
    conditions = {condition["type"]: condition for condition in moments[-1].job["status"]["conditions"]}
    assert len(conditions) == len(moments[-1].job["status"]["conditions"])
    assert conditions["Suspended"]["reason"].endswith("JobResumed")
    assert moments[-1].job["status"]["startTime"] >= conditions["Suspended"]["lastTransitionTime"]


def check(life: Life, workload: Workload, moments: list[Moment]) -> None:
    for moment in moments:
        if moment.subject is moment.job:
            check_spec(workload, moment)
        active_counts = active(moment.job)
        assert all(
            active_counts[role] <= count for role, count in sizes(life.kind).items() if role in active_counts
        )
        assert len({pod["metadata"]["labels"]["pool"] for pod in moment.pods.values()}) <= 1
        if moment.new_pod:
            check_new_pod(life, workload, moment.new_pod, moment.generation)
    check_quota(life, moments)
    check_end(moments)
    last = workload.flavors[4].labels["pool"]
    assert {pod["metadata"]["labels"]["pool"] for pod in moments[-1].pods.values()} == {last}


@pytest.mark.full
async def test_every_kind_with_replicas_follows_kueue_through_evictions(
    control_plane: ControlPlane, operator: Service, namespace: str
) -> None:
    with seeded() as chance:
        lives, history, kueue = await live_all(control_plane, namespace, chance)
        for life in lives:
            check(life, kueue.workloads[life.name], moments(life, history))
