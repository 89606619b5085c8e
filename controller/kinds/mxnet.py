"""MXJob, an opt-in kind: a scheduler, servers and workers that find each other by DMLC's variables, or a tuning job.

Source: training-operator 1.8.1, pkg/controller.v1/mxnet (mxnet.go, mxjob_controller.go).
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import orjson

from api.names import child_name
from api.v1.mxjob import RESOURCE, MXJob
from controller.domain import Counts, Problem, Role, Verdict
from controller.kind import Check, EnvVar, Options, ReplicaKind, Roles
from controller.kind.completion_rules import WORKER, losses
from controller.kind.pods import role_port
from controller.kind.services import host, qualified, subdomain

SCHEDULER = "Scheduler"
SERVER = "Server"
TUNER = "Tuner"
TUNER_SERVER = "TunerServer"
TUNER_TRACKER = "TunerTracker"

TUNER_SERVER_KEY = "tuner-server-key"
"""The annotation of a template whose value ``MX_CONFIG`` contains as the label of the role."""


def env(job: MXJob, roles: Roles, role: Role, index: int, options: Options) -> list[EnvVar]:
    """Return the variables of one pod, in the original's order."""
    scheduler, server, worker = (roles.get(name) for name in (SCHEDULER, SERVER, WORKER))
    variables: list[EnvVar] = [
        ("MX_CONFIG", _config(job, roles, role, index, options)),
        ("DMLC_PS_ROOT_PORT", str(role_port(MXNET, scheduler) if scheduler else 0)),
        ("DMLC_PS_ROOT_URI", _root(job, scheduler, role, options) if scheduler else ""),
        ("DMLC_NUM_SERVER", str(server.replicas if server else 0)),
        ("DMLC_NUM_WORKER", str(worker.replicas if worker else 0)),
        ("DMLC_ROLE", role.label),
        ("DMLC_USE_KUBERNETES", "1"),
    ]
    if role.name == WORKER:
        variables.append(("DMLC_WORKER_ID", str(index)))
    return variables


def completion_rule(job: MXJob, roles: Roles, counts: Mapping[str, Counts]) -> Verdict:
    """Return the verdict: the scheduler decides. In a tuning job the tracker says that it runs and the tuners that it is over.

    Differs: in the original nothing decides for a tuning job, which never ends, and a lost pod fails the job under OnFailure and Always
    instead of being replaced. See docs/decisions/0025-mxjob.md.
    """
    name = f"{RESOURCE.kind} {job.metadata.name}"
    last = _first(roles, SCHEDULER, TUNER, TUNER_TRACKER, WORKER)
    if last and counts[last.name].succeeded >= last.replicas:
        return Verdict(succeeded=f"{name} is successfully completed.")
    failed, restarting = losses(
        RESOURCE.kind,
        job,
        roles,
        counts,
        failure="mxjob {name} is failed because {count} {role} replica(s) failed.",
        restart="mxjob {name} is restarting because {count} {role} replica(s) failed.",
    )
    first = _first(roles, SCHEDULER, TUNER_TRACKER, TUNER, WORKER)
    is_running = first is not None and counts[first.name].active > 0
    return Verdict(running=f"{name} is running." if is_running else "", failed=failed, restarting=restarting)


def is_leader(_roles: Roles, role: Role, _index: int) -> bool:
    """Every server, as in the original."""
    return role.name == SERVER


def check(_job: MXJob, roles: Roles) -> Iterator[Problem]:
    """Return why no role can end the job.

    Differs: the original creates the pods, and the job never ends. See docs/decisions/0025-mxjob.md.
    """
    if SCHEDULER in roles or not roles:
        return
    path = "spec.mxReplicaSpecs"
    is_single_worker = set(roles) == {WORKER} and roles[WORKER].replicas <= 1
    if (SERVER in roles or WORKER in roles) and not is_single_worker:
        text = "Required value: must be present, unless the job is a single worker"
        yield Problem(f"{path}[{SCHEDULER}]", text)
    elif not any(roles[name].replicas for name in (TUNER, TUNER_TRACKER) if name in roles) and (
        TUNER_SERVER in roles
    ):
        yield Problem(f"{path}[{TUNER}]", f"Required value: must be present, unless {TUNER_TRACKER} is")


def _first(roles: Roles, *names: str) -> Role | None:
    """Return the first of these roles that has replicas."""
    return next((roles[name] for name in names if name in roles and roles[name].replicas), None)


def _root(job: MXJob, scheduler: Role, role: Role, options: Options) -> str:
    """Return the name by which a pod reaches the scheduler."""
    return host(job, scheduler, 0, options, is_own=role.name == SCHEDULER)


def _config(job: MXJob, roles: Roles, role: Role, index: int, options: Options) -> str:
    """Return the JSON with the addresses of all pods, the labels of the tuner's servers, and which pod this one is."""
    sizes = tuple((listed.label, listed.replicas, role_port(MXNET, listed)) for listed in _by_label(roles))
    labels = {listed.label: _annotation(listed) for listed in _by_label(roles)}
    task = {"type": role.label, "index": index}
    cluster = _cluster(job.metadata.name, sizes, subdomain(job, options))
    return f'{{"cluster":{cluster},"labels":{_json(labels)},"task":{_json(task)}}}'


@lru_cache(maxsize=16)
def _cluster(job: str, sizes: tuple[tuple[str, int, int], ...], domain: str) -> str:
    """Return all addresses by role; ``sizes`` are each role's label, replicas and port, and ``domain`` the subdomain of the pods.

    Cached, since all pods of a job get the same text.
    """
    return _json(
        {
            label: [
                {"url": qualified(child_name(job, label, at), domain), "port": port} for at in range(replicas)
            ]
            for label, replicas, port in sizes
        }
    )


def _by_label(roles: Roles) -> list[Role]:
    return sorted(roles.values(), key=lambda role: role.label)


def _annotation(role: Role) -> str:
    annotations: Mapping[str, str] = (role.template.get("metadata") or {}).get("annotations") or {}
    return annotations.get(TUNER_SERVER_KEY, "")


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


MXNET: Final = ReplicaKind[MXJob](
    resource=RESOURCE,
    model=MXJob,
    framework="mxnet",
    port=9091,
    role_names=(SCHEDULER, SERVER, TUNER, TUNER_SERVER, TUNER_TRACKER, WORKER),
    single_roles=(SCHEDULER,),
    # The original runs such jobs.
    left_to_controller=frozenset({Check.UNKNOWN_ROLE, Check.SINGLE_ROLE}),
    env=env,
    is_leader=is_leader,
    completion_rule=completion_rule,
    check=check,
    is_opt_in=True,
)
