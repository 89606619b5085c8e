"""The options of PyTorchJobs; ``tests/controller/test_app.py`` tests the content of a template file."""

import pytest

from controller.kinds.pytorch.options import PyTorchOptions


def test_zero_tries_are_rejected_with_the_name_of_the_flag() -> None:
    with pytest.raises(ValueError, match="--pytorch-init-container-max-tries must be at least 1, not 0"):
        PyTorchOptions(init_container_max_tries=0)


def test_the_default_template_file_is_optional() -> None:
    """Only the default path may be missing, because no user set it."""
    assert PyTorchOptions().load() == PyTorchOptions()
