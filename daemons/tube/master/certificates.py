"""Authentication of clients and brokers by signature (SimpleCertificateMasterHandler).

The open code of TubeMQ requires a name and a signature of clients and verifies neither: that is
left to a separate certificate center. Here both are verified if accounts exist. Without accounts a
certificate proves only that the clock of a client is right, as in TubeMQ.

Java's clients sign their registration only. Later requests contain the token of the answer, so each
answer has a token: the user, the time, and a MAC with a key of this master.
"""

import hmac
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from mq.client.machine import clock, random_ids
from mq.daemons.config import ConfigError, read_file
from mq.daemons.tube.failed_logins import FailedLogins
from mq.daemons.tube.master.groups import Refused
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.messages import MasterCertificateInfo
from mq.protocol.tube.signature import BrokerToken, verify

log = logging.getLogger(__name__)

_WRONG = "Illegal value: userName or password is not correct!"


def read_accounts(path: str) -> dict[str, str]:
    """Return passwords by name from a file of lines name=password; none without a file.

    Raises ConfigError.
    """
    if not path:
        return {}
    accounts = read_file(Path(path))
    if not accounts or not all(name and password for name, password in accounts.items()):
        raise ConfigError(f"accountsFile={path}: expected lines name=password")
    return accounts


class Client(NamedTuple):
    """An accepted client. ``user`` is "" if clients of its kind do not authenticate."""

    client_id: str
    produces: bool
    user: str = ""


class Certificates:
    """Verifies clients and brokers.

    Args:
        asks_producers, asks_consumers: whether they must authenticate. accounts: passwords of
        clients by name. broker: the name and the password of brokers; None if they do not
        authenticate. valid_ms: the maximum clock difference of a signing client. token_ms: the
        validity of a token of `grant`.
    """

    def __init__(
        self,
        *,
        asks_producers: bool,
        asks_consumers: bool,
        accounts: Mapping[str, str],
        broker: tuple[str, str] | None,
        valid_ms: int,
        token_ms: int,
    ) -> None:
        self._asks = {True: asks_producers, False: asks_consumers}
        self.accounts = accounts
        self._broker = broker
        self._valid_ms = valid_ms
        self._token_ms = token_ms
        self._key = random_ids.random_bytes(32)
        self._guesses = FailedLogins()
        if (asks_producers or asks_consumers) and not accounts:
            log.warning(
                "clients have to authenticate, but there is no accountsFile: as in TubeMQ's open "
                "source code any name and signature will do"
            )

    def check_client(
        self,
        certificate: MasterCertificateInfo,
        client_id: str,
        host: str,
        *,
        produces: bool,
        registers: bool = False,
    ) -> Client:
        """Return the client of a request.

        A request other than a registration may have a token instead of a signature. Raises Refused:
        with 411 for an invalid token, after which a client registers again; else with 415.
        """
        if not self._asks[produces]:
            return Client(client_id, produces)
        has_token = not registers and certificate.HasField("authorizedToken")
        if has_token and not certificate.HasField("authInfo"):
            return self._check_token(certificate.authorizedToken, client_id, produces=produces)
        name, signature = self._checked(certificate)
        if self.accounts:
            password = self.accounts.get(name, "")
            # An unknown name takes as long as a known one.
            right = self._verify(name, password, certificate, signature, host)
            if not (right and password):
                raise _refused(_WRONG)
        return Client(client_id, produces, name)

    def grant(self, client: Client) -> str:
        """Return the token for the client's next requests; "" without a user."""
        if not client.user:
            return ""
        now = clock.milliseconds()
        return str(BrokerToken(quote(client.user, safe=""), now, 0, self._mac(client, now)))

    def check_broker(self, certificate: MasterCertificateInfo, host: str) -> None:
        """Raises Refused with 415."""
        if self._broker is None:
            return
        name, signature = self._checked(certificate)
        own_name, password = self._broker
        if name != own_name:
            raise _refused("Illegal value: userName is not equal in authenticateToken!")
        if not self._verify(name, password, certificate, signature, host):
            raise _refused(_WRONG)

    def _check_token(self, text: str, client_id: str, *, produces: bool) -> Client:
        """Raises Refused with 411."""
        try:
            token = BrokerToken.parse(text)
        except MalformedText:
            raise _expired() from None
        client = Client(client_id, produces, unquote(token.user))
        right = hmac.compare_digest(
            self._mac(client, token.timestamp_ms).encode(),
            token.signature.encode("utf-8", "surrogatepass"),
        )
        is_known = not self.accounts or client.user in self.accounts
        age = clock.milliseconds() - token.timestamp_ms
        if not (right and is_known and -self._valid_ms <= age <= self._token_ms):
            raise _expired()
        return client

    def _mac(self, client: Client, issued_ms: int) -> str:
        """Return a MAC for this client and its present password only."""
        password = self.accounts.get(client.user, "")
        parts = (client.client_id, str(client.produces), client.user, password, str(issued_ms))
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), "sha256").hexdigest()

    def _verify(
        self,
        name: str,
        password: str,
        certificate: MasterCertificateInfo,
        signature: str,
        host: str,
    ) -> bool:
        """Return whether a signature is valid. Raises Refused for an address with too many invalid
        ones.
        """
        if self._guesses.is_blocked(host):
            raise _refused("too many wrong signatures from this address: try again in 10 s")
        info = certificate.authInfo
        is_right = verify(name, password, info.timestamp, info.nonce, signature)
        if not is_right:
            self._guesses.failed(host)
        return is_right

    def _checked(self, certificate: MasterCertificateInfo) -> tuple[str, str]:
        """Return name and signature, if they are present and the time is valid."""
        if not certificate.HasField("authInfo"):
            raise _refused("Server required MasterCertificateInfo!")
        info = certificate.authInfo
        name, signature = info.userName.strip(), info.signature.strip()
        if not name:
            raise _refused("Illegal value: authInfo.userName is Blank!")
        if not signature:
            raise _refused("Illegal value: authInfo.signature is Blank!")
        if abs(clock.milliseconds() - info.timestamp) > self._valid_ms:
            raise _refused("Illegal value: timestamp out of effective period in authenticateToken!")
        return name, signature


def _refused(text: str) -> Refused:
    return Refused(Code.CERTIFICATE_FAILURE, text)


def _expired() -> Refused:
    return Refused(Code.HB_NO_NODE, "authorizedToken is not valid any more, register again!")
