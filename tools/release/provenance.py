"""The provenance statement: what the files of a release were built from, and how.

Sources: in-toto Attestation Framework, Statement v1; SLSA 1.0, provenance.
"""

import json
from collections.abc import Mapping

from tools import registry
from tools.release import digest
from tools.version import ROOT

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
LOCKS = (
    "requirements/build.txt",
    "requirements/dev.txt",
    "requirements/operator.txt",
    "requirements/debian.json",
)
"""The files that pin, by digest, all that a build downloads."""


def statement(release: str, commit: str, files: Mapping[str, str]) -> str:
    """Return the statement about files, given by name with their SHA-256, as JSON.

    It has no time and names no machine: whoever builds the commit again gets the same statement. Who built is what the
    signatures say, and the attestations of the forge.
    """
    tag = f"refs/tags/v{release}"
    source = {"uri": f"git+{registry.REPOSITORY}@{tag}", "digest": {"gitCommit": commit}}
    locks = [{"name": lock, "digest": {"sha256": digest(ROOT / lock)}} for lock in LOCKS]
    predicate = {
        "buildDefinition": {
            "buildType": f"{registry.REPOSITORY}/blob/v{release}/docs/how-to/release.md",
            "externalParameters": {"version": release, "source": source["uri"]},
            "internalParameters": {},
            "resolvedDependencies": [source, *locks],
        },
        "runDetails": {"builder": {"id": f"{registry.REPOSITORY}/tree/v{release}/tools/release"}},
    }
    subjects = [{"name": name, "digest": {"sha256": sha256}} for name, sha256 in files.items()]
    content = {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": predicate}
    return json.dumps(content, indent=2) + "\n"
