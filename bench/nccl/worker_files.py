"""The worker's files: as a ConfigMap for pods of any image with torch, or in a folder of this machine."""

from pathlib import Path
from typing import Any

import orjson

from bench.nccl import worker

FOLDER = "/rallypoint-bench"
"""Mount path in pods."""
START, TASK = "start.py", "task.json"
_PACKAGES = ("bench", "bench/nccl")
_START = "import time\n\nSTARTED = time.time()\n\nfrom bench.nccl.worker.main import main\n\nmain(STARTED)\n"


def files(task: dict[str, Any]) -> dict[str, str]:
    """Return path → text, with empty packages around the worker in case the image has packages of these names."""
    folder = Path(worker.__file__).parent
    modules = {f"bench/nccl/worker/{path.name}": path.read_text() for path in sorted(folder.glob("*.py"))}
    packages = {f"{package}/__init__.py": "" for package in _PACKAGES}
    return {START: _START, TASK: orjson.dumps(task).decode(), **packages, **modules}


def config_map(name: str, task: dict[str, Any]) -> dict[str, Any]:
    data = {_key(path): text for path, text in files(task).items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def volume(name: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return a volume that mounts the ConfigMap as folders."""
    items = [{"key": _key(path), "path": path} for path in files(task)]
    return {"name": "rallypoint-bench", "configMap": {"name": name, "items": items}}


def write(folder: Path, task: dict[str, Any]) -> None:
    for path, text in files(task).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def _key(path: str) -> str:
    return path.replace("/", ".")
