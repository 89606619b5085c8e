"""RelayJob, a kind that nobody has: all that a new kind is. ``test_made_up_kind`` puts it into a copy of the product.

A head hands something to its workers; the first of them to have it ends the job, unless there is a head to say so.
"""

from typing import Final

from pydantic import Field

from api.job import Job, JobSpec, ReplicaSpec
from api.meta import Resource
from api.names import child_name
from controller.domain import Role
from controller.kind import EnvVar, Options, ReplicaKind, Roles
from controller.kind.pods import role_port

RESOURCE = Resource("kubeflow.org", "v1", "RelayJob", "relayjobs")
HEAD = "Head"


class RelayJobSpec(JobSpec):
    relay_replica_specs: dict[str, ReplicaSpec] | None = None
    laps: int | None = None


class RelayJob(Job):
    spec: RelayJobSpec = Field(default_factory=RelayJobSpec)


def env(job: RelayJob, roles: Roles, role: Role, index: int, _: Options) -> list[EnvVar]:
    host = roles.get(HEAD) or next(iter(roles.values()))
    return [
        ("RELAY_HEAD", f"{child_name(job.metadata.name, host.label, 0)}:{role_port(RELAY, host)}"),
        ("RELAY_SIZE", str(sum(one.replicas for one in roles.values()))),
        ("RELAY_PLACE", f"{role.label} {index}"),
        ("RELAY_LAPS", str(job.spec.laps or 1)),
    ]


RELAY: Final = ReplicaKind[RelayJob](
    resource=RESOURCE,
    model=RelayJob,
    port=7070,
    role_names=(HEAD, "Worker"),
    single_roles=(HEAD,),
    scalable=True,
    leader=HEAD,
    env=env,
)
