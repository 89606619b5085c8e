"""A limit on the size of files, in place of a full disk."""

import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def largest_file(size_bytes: int) -> Generator[None]:
    """Make writes beyond this size fail with ``File too large``. Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
