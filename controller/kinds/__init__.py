"""All job kinds. A new kind is one file beside this one, and one name here."""

from typing import Any, Final

from controller.kind import JobKind
from controller.kind.definition import require_distinct
from controller.kinds.jax import JAX
from controller.kinds.mpi import MPI
from controller.kinds.mxnet import MXNET
from controller.kinds.paddle import PADDLE
from controller.kinds.pytorch import PYTORCH
from controller.kinds.tensorflow import TENSORFLOW
from controller.kinds.xgboost import XGBOOST

ALL: Final[tuple[JobKind[Any], ...]] = (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX, MPI, MXNET)

require_distinct(ALL)

DEFAULT: Final = tuple(kind for kind in ALL if not kind.is_opt_in)
"""The kinds of the default installation, and those that a controller serves whose flags name none."""
