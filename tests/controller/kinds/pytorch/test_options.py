"""The options of PyTorchJobs; what a template file may hold is in ``tests/controller/test_app.py``."""

import pytest

from controller.kinds.pytorch.options import PyTorchOptions


def test_no_tries_are_refused_by_the_name_of_the_flag() -> None:
    with pytest.raises(ValueError, match="--pytorch-init-container-max-tries must be at least 1, not 0"):
        PyTorchOptions(init_container_max_tries=0)


def test_what_names_no_file_needs_none() -> None:
    """Only the default path may be missing, because no user set it."""
    assert PyTorchOptions().load() == PyTorchOptions()
