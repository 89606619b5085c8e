"""Which Services a job gets, as the annotation ``labels.SERVICES`` and the controller's flag name them."""

from enum import StrEnum


class ServiceMode(StrEnum):
    """Which headless Services make the names of a job's pods resolve.

    Differs: training-operator always creates one for each replica. See docs/decisions/0042-services.md.
    """

    PER_REPLICA = "per-replica"
    """One for each replica."""
    ADDRESSED = "addressed"
    """One for each replica that the environment of the job's pods names, or may have to name."""
    PER_JOB = "per-job"
    """One for the job. Its pods have the job's name as their subdomain."""
