"""The public kubeflow-training SDK works with ``rallypoint up``, without a cluster."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rallypoint.testing.up import up

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("sdk.py")
LONGEST_SECONDS = 300


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment that has the SDK, made when it is missing or follows another lock."""
    folder = ROOT / ".venv-sdk"
    make = [sys.executable, "tools/venv.py", str(folder), "requirements/sdk.txt"]
    subprocess.run(make, cwd=ROOT, check=True)
    return folder / "bin" / "python"


async def test_a_session_with_the_sdk(python: Path, tmp_path: Path) -> None:
    async with up(folder=tmp_path) as cluster:
        ended = await asyncio.to_thread(
            subprocess.run,
            [str(python), str(SCRIPT), str(cluster.kubeconfig)],
            capture_output=True,
            text=True,
            check=False,
            timeout=LONGEST_SECONDS,
        )
        assert await cluster.stop() == 0
    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout.splitlines()[-1])

    assert results["conditions"] == ["Created", "Succeeded"]
    assert results["pods"] == ["from-the-sdk-master-0", "from-the-sdk-worker-0"]
    assert results["masters"] == ["from-the-sdk-master-0"]
    assert results["logs"] == {"from-the-sdk-master-0": "rank 0 of 2\n"}
    assert results["succeeded"] is True
    assert sorted(results["said"].split()) == ["here", "there"]
    assert results["forwarded"].startswith("HTTP/1.0 ")
    assert results["suspended"] is True
    assert "rank 0 of 1" in results["shipped"]
    assert results["listed"] == ["from-the-sdk", "from-the-sdk-2", "from-the-sdk-3"]
    assert results["left"] == []
