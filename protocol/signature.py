"""Signatures of requests: HMAC-SHA1 over the values of the fields, in the order of their names, and
the body (AclUtils.combineRequestContent and AclSigner.calSignature of 4.9.8).
"""

import binascii
import hmac
from collections.abc import Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"

# Brokers of 4.9.8 exclude this field of QUERY_MESSAGE from the signed content; those of 5.x only
# for clients up to 4.9.3 (PlainAccessValidator.parse and PlainAccessResource.parse).
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_NEVER_SIGNED = frozenset((SIGNATURE,))
_QUERY_NOT_SIGNED = frozenset((SIGNATURE, UNIQUE_KEY_QUERY))


def content(
    fields: Mapping[str, str], body: bytes | memoryview, *, with_unique_key_query: bool = False
) -> bytes:
    """Return the signed bytes of a request."""
    unsigned = _NEVER_SIGNED if with_unique_key_query else _QUERY_NOT_SIGNED
    text = "".join([fields[name] for name in sorted(fields) if name not in unsigned])
    return b"".join((text.encode(), body))


def signature(secret_key: bytes, signed: bytes) -> str:
    """Return the signature of these bytes: base64, as in the field "Signature"."""
    digest = hmac.digest(secret_key, signed, "sha1")
    return binascii.b2a_base64(digest, newline=False).decode()
