"""Which Services a job gets: what it asks for, unless its pods were created for other ones.

The environment of a pod names the others, and never changes. So a job with pods keeps what their names need, until none of them is left.

See docs/decisions/0042-services.md.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from api.children import Pod
from api.job import Job
from api.services import ServiceMode
from controller.kind import JobKind, Options
from controller.kind.services import annotation_of, names_itself

_MODES = frozenset(ServiceMode)


def decided(kind: JobKind[Any], job: Job, pods: Collection[Pod], options: Options) -> Options:
    """Return the options with the mode of this job in place of the flag's; ``pods`` are those that it has, also ended ones.

    An annotation with an unknown value, which ``checks`` reports, counts as none. Kinds with a flow of their own have no modes.
    """
    if kind.flow is not None:
        return options
    value = annotation_of(job)
    mode = ServiceMode(value) if value in _MODES else options.services
    if any(pod.service == job.metadata.name for pod in pods):
        mode = ServiceMode.PER_JOB
    elif pods and mode == ServiceMode.PER_JOB:
        mode = ServiceMode.PER_REPLICA
    if mode == ServiceMode.PER_JOB and any(map(names_itself, kind.roles(job).values())):
        mode = ServiceMode.PER_REPLICA
    return options if mode == options.services else replace(options, services=mode)
