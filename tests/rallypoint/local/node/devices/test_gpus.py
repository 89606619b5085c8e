"""Which GPUs there are, which the site may use, and what a process sees of them; NVML is a double."""

import pytest
from structlog.testing import capture_logs

from rallypoint.local.node.devices.gpus import NoSuchGpu, list_gpus, usable, variables, visible_gpus
from rallypoint.testing.nvml import Nvml

GPUS = ("GPU-aa", "GPU-ab", "GPU-c")


def test_gpus_are_found_in_order() -> None:
    nvml = Nvml(*GPUS)

    assert list_gpus(nvml) == GPUS
    assert nvml.open == 0


def test_a_divided_gpu_counts_as_its_parts() -> None:
    nvml = Nvml("GPU-a", "GPU-b", parts={"GPU-a": ["MIG-1", None, "MIG-2"]})

    assert list_gpus(nvml) == ("MIG-1", "MIG-2", "GPU-b")


def test_a_machine_without_the_library_has_none_and_says_nothing() -> None:
    with capture_logs() as logs:
        assert list_gpus(None) == ()

    assert logs == []


def test_a_driver_that_does_not_answer_is_told() -> None:
    with capture_logs() as logs:
        assert list_gpus(Nvml(*GPUS, driver=False)) == ()

    assert [(entry["log_level"], entry["error"]) for entry in logs] == [("warning", "Driver Not Loaded")]


@pytest.mark.parametrize(
    ("visible", "wanted", "expected"),
    [
        pytest.param(None, None, GPUS, id="all"),
        pytest.param(None, "2", GPUS[:2], id="the first two"),
        pytest.param(None, "0", (), id="none"),
        pytest.param(None, "GPU-c,GPU-aa", ("GPU-c", "GPU-aa"), id="by name"),
        pytest.param("2,0", None, ("GPU-c", "GPU-aa"), id="the person's own limit"),
        pytest.param("1,2", "1", ("GPU-ab",), id="both"),
        pytest.param("", None, (), id="a limit to none"),
    ],
)
def test_what_the_site_may_use(visible: str | None, wanted: str | None, expected: tuple[str, ...]) -> None:
    assert usable(GPUS, visible, wanted) == expected


@pytest.mark.parametrize(
    ("visible", "wanted", "words"),
    [
        pytest.param(None, "4", "there are 3", id="too many"),
        pytest.param("0", "2", "there are 1", id="more than the person may use"),
        pytest.param(None, "GPU-x", "there is no GPU-x; there are GPU-aa, GPU-ab, GPU-c", id="another one"),
    ],
)
def test_what_is_not_there_is_refused(visible: str | None, wanted: str, words: str) -> None:
    with pytest.raises(NoSuchGpu, match=words):
        usable(GPUS, visible, wanted)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        pytest.param("GPU-c", ("GPU-c",), id="a name"),
        pytest.param("GPU-a", (), id="the beginning of two"),
        pytest.param("1,7,0", ("GPU-ab",), id="what is not there ends the list"),
        pytest.param("-1", (), id="the usual way to say none"),
    ],
)
def test_values_of_cuda_visible_devices(visible: str, expected: tuple[str, ...]) -> None:
    assert visible_gpus(GPUS, visible) == expected


@pytest.mark.parametrize(
    ("gpus", "written", "cuda", "nvidia"),
    [
        pytest.param(GPUS[:2], None, "GPU-aa,GPU-ab", "GPU-aa,GPU-ab", id="its own"),
        pytest.param((), None, "", "void", id="none"),
        pytest.param(GPUS[1:], "1", "GPU-c", "GPU-ab,GPU-c", id="a place among its own"),
        pytest.param((), "0,1", "", "void", id="a place among none"),
    ],
)
def test_the_environment_of_a_container(
    gpus: tuple[str, ...], written: str | None, cuda: str, nvidia: str
) -> None:
    assert variables(gpus, written) == {"CUDA_VISIBLE_DEVICES": cuda, "NVIDIA_VISIBLE_DEVICES": nvidia}
