"""Recorded runs: the figures, the environment, the versions and the commit. Files are added, never edited."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson
import psutil

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
MEASURED_PATHS = ("api", "controller", "manifests")
RENAMED_KEYS = {
    "asked": "config",
    "by_hand": "manual",
    "children_told": "children_with_event",
    "cpu_until_quiet_ms": "cpu_until_idle_ms",
    "drill": "fault",
    "ends_told": "ends_with_event",
    "floor": "baseline",
    "jobs_never_seen_running": "jobs_never_observed_running",
    "stamps": "timestamps",
}
"""Keys of earlier records, and their current names."""
PACKAGES = ("aiohttp", "kubernetes-asyncio", "msgspec", "orjson", "pydantic", "uvloop")


def environment() -> dict[str, Any]:
    """Describe the machine and the versions on it, without anything that identifies the machine."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {name: _version(name) for name in PACKAGES},
    }


def load_average() -> float:
    """Return the average number of processes that wanted a core during the last minute."""
    return round(os.getloadavg()[0], 2)


def commit() -> dict[str, Any]:
    """Return the commit of this checkout, and whether measured code differs from it; unknown outside of a checkout."""
    if not (ROOT / ".git").exists():
        # Installed as a package: a checkout around it belongs to another project.
        return {"id": "unknown", "changed": True}
    try:
        changed = _git("status", "--porcelain", "--", *MEASURED_PATHS) != ""
        return {"id": _git("rev-parse", "HEAD"), "changed": changed}
    except (OSError, subprocess.CalledProcessError):
        return {"id": "unknown", "changed": True}


def document(load_before: float, version: str = "", **measured: Any) -> dict[str, Any]:
    """Return a record of what was measured with kube-apiserver ``version``, if there was one."""
    versions = {"versions": {"kube-apiserver": version}} if version else {}
    return {
        "definitions": "bench/README.md",
        "commit": commit(),
        "environment": environment() | versions,
        "load_average": {"before": load_before, "after": load_average()},
        **measured,
    }


def save(name: str, result: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a new file ``<date>-<name>.json``, with a number if that file exists."""
    folder.mkdir(parents=True, exist_ok=True)
    day = datetime.now(UTC).date().isoformat()
    path, number = folder / f"{day}-{name}.json", 2
    while path.exists():
        path, number = folder / f"{day}-{name}-{number}.json", number + 1
    path.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return path


def read(path: Path) -> Any:
    """Return a recorded run with its keys under their current names.

    Raises:
        OSError, ValueError: the file cannot be read, or is not JSON.
    """
    return _with_current_keys(orjson.loads(path.read_bytes()))


def _with_current_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {RENAMED_KEYS.get(key, key): _with_current_keys(item) for key, item in value.items()}
    return [_with_current_keys(item) for item in value] if isinstance(value, list) else value


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
