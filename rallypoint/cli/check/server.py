"""Checks of the API server: its version, and its clock against the local one."""

import re
from collections.abc import Iterator

from rallypoint.cli.check.facts import Facts
from rallypoint.cli.check.findings import Finding, blocker, ok, unknown, warning
from rallypoint.cli.check.operators import CLOCK_SECONDS

OLDEST, NEWEST = (1, 29), (1, 37)
"""The oldest and the newest Kubernetes on which the tests run."""
_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def version_findings(facts: Facts) -> Iterator[Finding]:
    text = str(facts.version.get().get("gitVersion", ""))
    found = _VERSION.match(text)
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
    if found is None:
        yield unknown("server", f"the API server's version {text!r} is not a version of Kubernetes")
        return
    version = int(found[1]), int(found[2])
    if version < OLDEST:
        yield blocker(
            "server",
            f"Kubernetes {text} is older than {oldest}, the oldest supported version",
            f"upgrade the cluster to {oldest} or newer",
        )
    elif version > NEWEST:
        yield warning(
            "server",
            f"Kubernetes {text} is newer than {newest}, the newest tested version",
            "look for a newer Rallypoint; rallypoint crds --from-cluster adds the pod fields of this version to the CRDs",
        )
    else:
        yield ok("server", f"Kubernetes {text} is supported ({oldest} to {newest})")


def clock_findings(facts: Facts) -> Iterator[Finding]:
    offset = facts.offset_seconds
    if offset is None:
        yield unknown("clock", "the API server's answers have no Date header")
    elif abs(offset) > CLOCK_SECONDS:
        side = "ahead of" if offset > 0 else "behind"
        yield warning(
            "clock",
            f"the API server's clock is {abs(offset):.0f} s {side} the local one",
            "synchronize both clocks: deadlines, TTLs and certificates depend on them",
        )
    else:
        yield ok("clock", "the API server's clock and the local one agree")
