"""Builds the operator's OCI image without Docker: ``python -m tools.image build --output DIR``.

The base is the interpreter and its libraries from Debian's packages (``requirements/debian.json``), then the locked wheels, then the
operator's own wheel: one layer each, so that an upgrade downloads little. The same commit gives the same digests on every machine: each
input is held against a hash, and the image's own interpreter compiles the bytecode and compresses the layers.
"""


class ImageError(Exception):
    """The image cannot be built, or is not what it should be; the message says what to do."""
