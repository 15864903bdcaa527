"""Who a client or a broker is, by what it signs (SimpleCertificateMasterHandler).

The open code of TubeMQ asks clients for a name and a signature and looks at neither: it leaves that
to a certificate center of its own. Here they are checked as soon as there are accounts. Without
accounts a certificate proves nothing but that the clock of a client is right, as there.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from mq.client.machine import clock
from mq.daemons.config import ConfigError, read_file
from mq.daemons.tube.master.groups import Refused
from mq.protocol.tube.codes import Code
from mq.protocol.tube.messages import MasterCertificateInfo
from mq.protocol.tube.signature import verify

log = logging.getLogger(__name__)

_WRONG = "Illegal value: userName or password is not correct!"


def read_accounts(path: str) -> dict[str, str]:
    """Passwords by name from a file of lines name=password; none where there is no file.

    Raises ConfigError.
    """
    if not path:
        return {}
    accounts = read_file(Path(path))
    if not accounts or not all(name and password for name, password in accounts.items()):
        raise ConfigError(f"accountsFile={path}: expected lines name=password")
    return accounts


class Certificates:
    """``accounts`` are those of clients, ``broker`` the name and the password of brokers, or None
    where these are not asked."""

    def __init__(
        self,
        *,
        asks_producers: bool,
        asks_consumers: bool,
        accounts: Mapping[str, str],
        broker: tuple[str, str] | None,
        valid_ms: int,
    ) -> None:
        self._asks = {True: asks_producers, False: asks_consumers}
        self.accounts = accounts
        self._broker = broker
        self._valid_ms = valid_ms
        if (asks_producers or asks_consumers) and not accounts:
            log.warning(
                "clients have to authenticate, but there is no accountsFile: as in TubeMQ's open "
                "source code any name and signature will do"
            )

    def check_client(self, certificate: MasterCertificateInfo, *, produces: bool) -> str:
        """The name of who asks, "" where nobody has to say it. Raises Refused with 415."""
        if not self._asks[produces]:
            return ""
        name, signature = self._checked(certificate)
        if self.accounts:
            info = certificate.authInfo
            password = self.accounts.get(name, "")
            # A name that is not known takes as long as one that is.
            right = verify(name, password, info.timestamp, info.nonce, signature)
            if not (right and password):
                raise _refused(_WRONG)
        return name

    def check_broker(self, certificate: MasterCertificateInfo) -> None:
        """Raises Refused with 415."""
        if self._broker is None:
            return
        name, signature = self._checked(certificate)
        own_name, password = self._broker
        if name != own_name:
            raise _refused("Illegal value: userName is not equal in authenticateToken!")
        info = certificate.authInfo
        if not verify(name, password, info.timestamp, info.nonce, signature):
            raise _refused(_WRONG)

    def _checked(self, certificate: MasterCertificateInfo) -> tuple[str, str]:
        """Name and signature, if they are there and the time is right."""
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
