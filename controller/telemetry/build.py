"""Which build runs: the version of a distribution, and the commit that it was built from."""

import contextlib
import json
import os
import subprocess
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

DISTRIBUTION = "rallypoint-operator"
COMMIT_VARIABLE = "RALLYPOINT_COMMIT"
"""The environment variable that the image sets."""
UNKNOWN = "unknown"
_COMMIT_FILE = "extra_metadata/COMMIT"
"""Where a wheel has its commit, among its metadata. ``deploy/operator/hatch_build.py`` writes it."""
_CHECKOUT = Path(__file__).parents[2]
_GIT_SECONDS = 5.0


def operator_version() -> str:
    """Return the version of the distribution."""
    return version(DISTRIBUTION)


def operator_commit() -> str:
    """Return the commit of the operator: see ``commit``."""
    return commit(DISTRIBUTION)


def commit(name: str) -> str:
    """Return the commit of a distribution: that of the image, of its wheel, of an installation from a repository (PEP 610), or of the checkout; else ``unknown``."""
    return os.environ.get(COMMIT_VARIABLE) or _installed_commit(name) or _checked_out_commit() or UNKNOWN


def version_text(name: str = DISTRIBUTION) -> str:
    """Return version and commit of a distribution as ``--version`` prints them."""
    return f"{name} {version(name)} (commit {commit(name)})"


def _installed_commit(name: str) -> str:
    with contextlib.suppress(PackageNotFoundError, json.JSONDecodeError):
        installed = distribution(name)
        if in_wheel := installed.read_text(_COMMIT_FILE):
            return in_wheel.strip()
        origin = json.loads(installed.read_text("direct_url.json") or "{}")
        return str(origin.get("vcs_info", {}).get("commit_id", ""))
    return ""


def _checked_out_commit() -> str:
    if not (_CHECKOUT / ".git").exists():
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(_CHECKOUT), "rev-parse", "HEAD"]
        completed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS)
        return completed.stdout.strip()
    return ""
