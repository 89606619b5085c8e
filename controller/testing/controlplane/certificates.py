"""The control plane's own authority and what it signs: serving certificates, etcd's client, token keys."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.testing.controlplane.access import write_private

_LIFETIME = datetime.timedelta(days=30)
_CLOCK_SKEW = datetime.timedelta(minutes=5)
_LOOPBACK = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True)
class Pair:
    """Paths of a certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that lives in one folder and for one control plane."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("rallypoint-controlplane")
        self._issuer_key_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            _builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(sign_certificates=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.path = write_private(directory / "ca.crt", self.pem)

    def issue(self, name: str) -> Pair:
        """A certificate for ``name`` that serves on loopback and authenticates as a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_name(name), self._name, key.public_key())
            .add_extension(self._issuer_key_id, critical=False)
            .add_extension(x509.SubjectAlternativeName(_LOOPBACK), critical=False)
            .add_extension(x509.ExtendedKeyUsage(_USAGES), critical=False)
            .add_extension(_usage(sign_certificates=False), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return Pair(
            write_private(
                self._directory / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM)
            ),
            write_private(self._directory / f"{name}.key", _private_pem(key)),
        )


def token_key(path: Path) -> Path:
    """A key that signs the tokens of ServiceAccounts; it serves for checking them as well."""
    return write_private(path, _private_pem(ec.generate_private_key(ec.SECP256R1())))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
