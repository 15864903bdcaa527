"""A self-signed certificate for tls.test.mode.enable (Java: Netty's SelfSignedCertificate)."""

import datetime
import os
import ssl
import tempfile

from mq.daemons.config import ConfigError

_DAYS = 365


def load_test_certificate(context: ssl.SSLContext) -> None:
    """Generate a key and a certificate, and load them into the context.

    Raises:
        ConfigError: the required library is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError(
            "tls.test.mode.enable=true needs a library to make a certificate: "
            "pip install cryptography"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mq test certificate")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    # The ssl module reads certificates from files only; this one is readable by its owner only, and
    # short-lived.
    descriptor, path = tempfile.mkstemp(prefix="mq-", suffix=".pem")
    try:
        with open(descriptor, "wb") as file:
            file.write(pem)
        context.load_cert_chain(path)
    finally:
        os.unlink(path)
