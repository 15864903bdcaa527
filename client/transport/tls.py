"""TLS to brokers and name servers, with the names of Java's tls.properties.

  tls.client.trustCertPath   CA certificates for the servers', in PEM; default: the system's
  tls.client.authServer      true: accept only servers with a certificate signed by one of those
  tls.client.certPath, tls.client.keyPath, tls.client.keyPassword     this client's own
  tls.test.mode.enable       true: ignore all of these

As in Java (TlsHelper.buildSslContext) any certificate is accepted unless tls.client.authServer is
true, and host names are not checked, because addresses in routes are numeric. Unlike in Java the
test mode is off by default.
"""

import ssl
from collections.abc import Mapping

from mq.client.errors import ClientError


def client_context(properties: Mapping[str, str] | None = None) -> ssl.SSLContext:
    """Create the context that these properties describe. Raises ClientError, which names an invalid
    file.
    """
    values = dict(properties or {})
    if _is_true(values, "tls.test.mode.enable"):
        values = {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    trusted = values.get("tls.client.trustCertPath", "")
    if _is_true(values, "tls.client.authServer"):
        try:
            if trusted:
                context.load_verify_locations(trusted)
            else:
                context.load_default_certs()
        except (OSError, ssl.SSLError) as error:
            raise _wrong("tls.client.trustCertPath", trusted, error) from None
    else:
        context.verify_mode = ssl.CERT_NONE
    certificate = values.get("tls.client.certPath", "")
    if certificate:
        password = values.get("tls.client.keyPassword") or ""
        try:
            # never None: OpenSSL would prompt on the terminal
            context.load_cert_chain(
                certificate, values.get("tls.client.keyPath") or None, lambda: password
            )
        except (OSError, ssl.SSLError) as error:
            raise _wrong("tls.client.certPath and keyPath", certificate, error) from None
    return context


def _is_true(values: Mapping[str, str], name: str) -> bool:
    return values.get(name, "").strip().lower() == "true"


def _wrong(name: str, path: str, error: OSError) -> ClientError:
    return ClientError(f"{name}={path} cannot be used: {error.strerror or error}")
