"""The figures of a recovery, and their table."""

from bench import recovery
from bench.controlplane.audit import Calls
from bench.figures import table


def test_a_phase_lasts_until_its_last_moment() -> None:
    phase = recovery.Phase(10.0, Calls({}, {}))

    assert phase.ms([10.5, 12.0, 11.0]) == 2000


def test_the_table_has_a_row_for_each_figure() -> None:
    run = dict.fromkeys(recovery.LABELS, 1.0)

    shown = table("one pod of a job fails", recovery.LABELS, {"8 pods": [run]})

    assert shown.row_count == len(recovery.LABELS)
