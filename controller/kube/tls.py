"""TLS contexts for requests to API servers."""

import ssl


def client_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Return a context that verifies servers as Go's ``crypto/x509`` does, whatever this Python's defaults are.

    The chain, the validity period and the host name are checked. Certificates need no key identifiers: the authorities
    of some managed clusters have none, and Python 3.13 and newer would refuse these (``VERIFY_X509_STRICT``). Each
    given authority ends a chain, also one that another authority has signed (``VERIFY_X509_PARTIAL_CHAIN``), which
    only Python 3.13 and newer accept by default. Without authorities, the system's own are trusted.

    Raises:
        ssl.SSLError: the authorities make no sense.
        OSError: the file cannot be read.
    """
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)  # noqa: TID251 - this is the one place
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
