"""A job with real torch whose ranks are killed ends with the weights of one that nobody disturbed: the short form of ``bench checkpoints``."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.checkpoints import STEPS_PER_EPOCH, Run, compare

ROOT = Path(__file__).parents[2]
KILLS = 2
EPOCHS = 8


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of an environment with torch; created if it is missing or its lock changed."""
    folder = ROOT / ".venv-demo"
    make = [sys.executable, "tools/venv.py", str(folder), "requirements/demo.txt"]
    subprocess.run(make, cwd=ROOT, check=True)
    return folder / "bin" / "python"


@pytest.mark.full
async def test_killed_ranks_leave_no_trace_in_the_weights(python: Path) -> None:
    undisturbed, killed = await compare(python, KILLS, EPOCHS, pause=0.05, seed=1)

    assert list(killed.problems(undisturbed, KILLS, EPOCHS)) == []
    assert undisturbed.repeated == 0
    assert [attempt["exitCode"] for attempt in killed.status["attempts"]] == [137] * KILLS
    assert "recoveringSeconds" in killed.status["wallClock"]


def test_a_difference_of_the_runs_is_named() -> None:
    steps = [(0, step) for step in range(1, STEPS_PER_EPOCH + 1)]
    undisturbed = Run("a", steps, {})
    history = {"restarts": 1, "attempts": [{}]}

    def problems(weights: str, found: list[tuple[int, int]]) -> list[str]:
        return [
            problem.partition(":")[0] for problem in Run(weights, found, history).problems(undisturbed, 1, 1)
        ]

    resumed = [*steps[:5], *((1, step) for step in range(4, STEPS_PER_EPOCH + 1))]
    assert problems("a", resumed) == []
    assert problems("b", resumed) == ["the weights differ"]
    assert problems("a", resumed[:-1]) == ["the steps 1 to 12 were not all done"]
    assert problems("a", [*resumed, (1, STEPS_PER_EPOCH)]) == ["attempt 1 left out or repeated a step"]
