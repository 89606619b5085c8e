"""The control plane's certificate authority and its files: serving certificates, etcd's client certificate, token keys."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from rallypoint.local.apiserver.serving import certificates
from rallypoint.testing.controlplane.access import write_private

_LIFETIME = datetime.timedelta(days=30)
_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a PEM certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority of one control plane, with its certificates in one folder."""

    def __init__(self, directory: Path, *, key_identifiers: bool = True) -> None:
        self._directory = directory
        self._signer = certificates.Authority(
            "rallypoint-controlplane", _now(), _LIFETIME, key_identifiers=key_identifiers
        )
        self.pem = self._signer.pem
        self.path = write_private(directory / "ca.crt", self.pem)

    def issue(self, name: str, *, addresses: Sequence[str] = (), names: Sequence[str] = ()) -> Pair:
        """Issue a certificate for ``name`` that serves on loopback, these addresses and names, and authenticates a client."""
        alternative_names = [
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
            *map(x509.DNSName, names),
        ]
        certificate, key = self._signer.issue(name, _USAGES, _now(), alternative_names=alternative_names)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        return Pair(
            write_private(self._directory / f"{name}.crt", pem),
            write_private(self._directory / f"{name}.key", _private_pem(key)),
        )


def token_key(path: Path) -> Path:
    """Create a key that signs and verifies the tokens of ServiceAccounts."""
    return write_private(path, _private_pem(ec.generate_private_key(ec.SECP256R1())))


def _now() -> datetime.datetime:
    """Return the real time, even if a test has set the service's clock: a real server checks it."""
    return datetime.datetime.now(datetime.UTC)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
