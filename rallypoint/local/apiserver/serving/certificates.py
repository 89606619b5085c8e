"""Serving certificates for loopback, and the authority that signs them.

kubectl sends tokens only over TLS. This is the only module that imports ``cryptography``; import it on first use.
"""

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)
CLOCK_SKEW = datetime.timedelta(minutes=5)
NAMES = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))

Signed = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]
"""A certificate and its private key."""


class Authority:
    """A certificate authority whose certificates are valid from ``now`` for ``lifetime``. Its key stays in memory.

    Args:
        key_identifiers: whether certificates have key identifiers, as strict clients require. Those of some managed
            clusters have none.
    """

    def __init__(
        self,
        name: str,
        now: datetime.datetime,
        lifetime: datetime.timedelta,
        *,
        key_identifiers: bool = True,
    ) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._lifetime = lifetime
        self._key_identifiers = key_identifiers
        certificate = (
            self._builder(self._name, self._key, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        name: str,
        usages: Sequence[x509.ObjectIdentifier],
        now: datetime.datetime,
        *,
        alternative_names: Sequence[x509.GeneralName] = (),
    ) -> Signed:
        """Issue a certificate with that common name, for loopback and the ``alternative_names``."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(_name(name), key, now)
            .add_extension(x509.SubjectAlternativeName([*NAMES, *alternative_names]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_usage(signs=False), critical=True)
        )
        if self._key_identifiers:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        return builder.sign(self._key, hashes.SHA256()), key

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime
    ) -> x509.CertificateBuilder:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + self._lifetime)
        )
        if self._key_identifiers:
            own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            builder = builder.add_extension(own, critical=False)
        return builder


@dataclass(frozen=True, slots=True)
class Identity:
    """The TLS context of a server, and the certificate authority (PEM) that its clients trust."""

    tls: ssl.SSLContext = field(repr=False)
    authority: bytes


def identity(now: datetime.datetime, address: str = "", names: Sequence[str] = ()) -> Identity:
    """Create an identity for loopback, an address and DNS names.

    The private key is on disk only while it is loaded, in a folder that only this user can enter.
    """
    authority = Authority("rallypoint local authority", now, LIFETIME)
    addresses = [x509.IPAddress(ipaddress.ip_address(address))] if address else []
    alternative_names = [*addresses, *map(x509.DNSName, names)]
    signed = authority.issue(
        "rallypoint", [ExtendedKeyUsageOID.SERVER_AUTH], now, alternative_names=alternative_names
    )
    return Identity(_context(*signed), authority.pem)


def _context(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with tempfile.TemporaryDirectory(prefix="rallypoint-") as folder:
        bundle = Path(folder, "server.pem")
        bundle.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        context.load_cert_chain(bundle)
    return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
