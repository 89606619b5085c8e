"""The worker's files for pods."""

import re
from pathlib import Path

from bench.nccl import worker_files


def test_the_worker_starts_from_a_folder(tmp_path: Path) -> None:
    worker_files.write(tmp_path, {"backend": "gloo"})

    assert (tmp_path / "task.json").read_text() == '{"backend":"gloo"}'
    assert "from bench.nccl.worker.main import main" in (tmp_path / "start.py").read_text()
    assert (tmp_path / "bench/nccl/worker/main.py").exists()
    assert (tmp_path / "bench/__init__.py").read_text() == ""


def test_the_config_map_is_valid() -> None:
    record, volume = worker_files.config_map("nccl", {}), worker_files.volume("nccl", {})

    assert all(re.fullmatch(r"[-._a-zA-Z0-9]+", key) for key in record["data"])
    assert sum(map(len, record["data"].values())) < 1 << 20
    items = {item["key"]: item["path"] for item in volume["configMap"]["items"]}
    assert items.keys() == record["data"].keys()
    assert items["bench.nccl.worker.main.py"] == "bench/nccl/worker/main.py"
