"""TLS settings of the listening and the connecting side, with the names of Java's system
properties. They may be in the daemon's file, on the command line (--set), or in the file that
tls.config.file names.
"""

import datetime
import logging
import os
import ssl
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from mq.client.errors import ClientError
from mq.client.transport.tls import client_context
from mq.daemons.config import ConfigError, Section, read_file, setting

log = logging.getLogger(__name__)

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


class TlsMode(StrEnum):
    """The connections that a listener accepts."""

    disabled = "disabled"  # only plain ones
    permissive = "permissive"  # both, on the same port
    enforcing = "enforcing"  # only encrypted ones


# Values of tls.server.need.client.auth, case-insensitive (TlsHelper.parseClientAuthMode).
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "require": ssl.CERT_REQUIRED,
}


@dataclass(frozen=True)
class TlsConfig(Section):
    """TLS of this daemon."""

    is_checked_at_once = False

    mode: TlsMode = setting(  # noqa: RUF009
        TlsMode.permissive,
        "disabled, permissive (plain and TLS on one port) or enforcing; without a certificate a "
        "permissive listener is a plain one",
        name="tls.server.mode",
    )
    cert_path: str = setting(
        "", "certificate of this daemon, with its chain, in PEM", name="tls.server.certPath"
    )
    key_path: str = setting("", "its private key, in PEM", name="tls.server.keyPath")
    key_password: str = setting("", "password of that key", name="tls.server.keyPassword")
    auth_client: bool = setting(
        False,
        "whether a client's certificate must be signed by a trusted one",
        name="tls.server.authClient",
    )
    trust_cert_path: str = setting(
        "", "certificates that sign those of clients, in PEM", name="tls.server.trustCertPath"
    )
    need_client_auth: str = setting(
        "none",
        "whether clients show a certificate: none, optional or require",
        name="tls.server.need.client.auth",
    )
    test_mode: bool = setting(
        False,
        "a certificate made at the start, for tests (Java: true)",
        name="tls.test.mode.enable",
    )
    config_file: str = setting(
        "/etc/rocketmq/tls.properties",
        "file whose values override these, but for mode and tls.enable",
        name="tls.config.file",
    )
    enable: bool = setting(False, "TLS towards name servers and masters", name="tls.enable")
    client_cert_path: str = setting(
        "", "certificate shown to them, in PEM", name="tls.client.certPath"
    )
    client_key_path: str = setting("", "its private key, in PEM", name="tls.client.keyPath")
    client_key_password: str = setting("", "password of that key", name="tls.client.keyPassword")
    client_auth_server: bool = setting(
        False, "whether their certificates are verified", name="tls.client.authServer"
    )
    client_trust_cert_path: str = setting(
        "", "certificates that sign theirs, in PEM", name="tls.client.trustCertPath"
    )

    def complete(self) -> Self:
        """These settings with the values of the configuration file, if it exists
        (extractTlsConfigFromFile).

        Raises:
            ConfigError: the file cannot be read, or a value is invalid.
        """
        completed = self
        path = Path(self.config_file)
        if self.config_file and path.is_file():
            values = self.parse(read_file(path))
            for own in ("mode", "enable", "config_file"):
                values.pop(own, None)
            completed = self.replace(**values)
        completed.check()
        return completed

    def check(self) -> None:
        """Refuse invalid values.

        Raises:
            ConfigError: names the setting.
        """
        if self.need_client_auth.lower() not in _CLIENT_AUTH:
            raise ConfigError(
                f"tls.server.need.client.auth={self.need_client_auth}: expected none, optional "
                "or require"
            )
        if self.mode is TlsMode.enforcing and not self.has_certificate:
            raise ConfigError(
                "tls.server.mode=enforcing needs a certificate: set tls.server.certPath and "
                "tls.server.keyPath"
            )
        if self.need_client_auth.lower() == "require" and not self.auth_client:
            # Java would accept any certificate, which proves nothing.
            raise ConfigError(
                "tls.server.need.client.auth=require needs tls.server.authClient=true and "
                "tls.server.trustCertPath"
            )
        if self.auth_client and not self.trust_cert_path:
            raise ConfigError("tls.server.authClient=true needs tls.server.trustCertPath")

    @property
    def has_certificate(self) -> bool:
        return bool(self.cert_path) or self.test_mode

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the listener's TLS."""
        names = (self.cert_path, self.key_path, self.trust_cert_path)
        return tuple(Path(name) for name in names if name)

    def server_context(self) -> ssl.SSLContext:
        """The context of the listener, from the current files.

        Raises:
            ConfigError: names the invalid file.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.test_mode:
            load_test_certificate(context)
            return context
        try:
            # A function: with None OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(
                self.cert_path, self.key_path or None, lambda: self.key_password
            )
        except OSError as error:  # includes ssl.SSLError
            raise ConfigError(
                f"tls.server.certPath={self.cert_path} with tls.server.keyPath={self.key_path} "
                f"are invalid: {error.strerror or error}"
            ) from None
        wanted = _CLIENT_AUTH[self.need_client_auth.lower()]
        if wanted is not ssl.CERT_NONE and self.auth_client:
            context.verify_mode = wanted
            try:
                context.load_verify_locations(self.trust_cert_path)
            except OSError as error:
                raise ConfigError(
                    f"tls.server.trustCertPath={self.trust_cert_path} is invalid: "
                    f"{error.strerror or error}"
                ) from None
        return context

    def client_context(self) -> ssl.SSLContext:
        """The context for connections to name servers and masters.

        Raises:
            ConfigError: names the invalid file.
        """
        names = {
            "tls.client.certPath": self.client_cert_path,
            "tls.client.keyPath": self.client_key_path,
            "tls.client.keyPassword": self.client_key_password,
            "tls.client.authServer": "true" if self.client_auth_server else "false",
            "tls.client.trustCertPath": self.client_trust_cert_path,
        }
        try:
            return client_context(names)
        except ClientError as error:
            raise ConfigError(str(error)) from None
