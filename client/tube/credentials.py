"""Who a client of TubeMQ is: user and password, and the tokens that masters give.

Masters get an AuthenticateInfo that is signed anew with each request, and the token that they gave;
brokers the visit token of the master, and a signed text of their own. The original's Java client
sends the token alone where it was told to send more (BaseMessageConsumer.genMasterCertificateInfo
asks the wrong question), its C++ client has stubs: here both are sent, always.
"""

from dataclasses import dataclass, field

from mq.client.errors import ClientError
from mq.client.machine import clock, random_ids
from mq.protocol.tube import signature
from mq.protocol.tube.codes import UNDEFINED
from mq.protocol.tube.messages import AuthorizedInfo, MasterAuthorizedInfo, MasterCertificateInfo

_NONCES = 2**31 - 1


@dataclass(frozen=True)
class TubeCredentials:
    """A user of a TubeMQ cluster. Raises ClientError where either is empty."""

    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.user.strip() or not self.password.strip():
            raise ClientError("a user and a password of TubeMQ must not be empty")


class Identity:
    """What one client shows of itself, and the tokens it was given last."""

    def __init__(self, credentials: TubeCredentials | None) -> None:
        self._credentials = credentials
        self.visit_token: int = UNDEFINED
        self.token = ""

    def learn(self, given: MasterAuthorizedInfo) -> None:
        """Take the tokens of an answer of a master."""
        self.visit_token = given.visitAuthorizedToken
        if given.authAuthorizedToken.strip():
            self.token = given.authAuthorizedToken

    def for_master(self) -> MasterCertificateInfo | None:
        """The certificate of a request to a master; None without a user."""
        if self._credentials is None:
            return None
        user, password = self._credentials.user, self._credentials.password
        now, nonce = clock.milliseconds(), random_ids.randrange(_NONCES)
        certificate = MasterCertificateInfo()
        info = certificate.authInfo
        info.userName = user
        info.timestamp = now
        info.nonce = nonce
        info.othParams = ""
        info.signature = signature.sign(user, password, now, nonce)
        if self.token:
            certificate.authorizedToken = self.token
        return certificate

    def for_broker(self) -> AuthorizedInfo:
        """What goes with a request to a broker: the visit token, and who we are, if we say so."""
        info = AuthorizedInfo(visitAuthorizedToken=self.visit_token)
        if self._credentials is not None:
            user, password = self._credentials.user, self._credentials.password
            now, nonce = clock.milliseconds(), random_ids.randrange(_NONCES)
            info.authAuthorizedToken = signature.broker_token(user, password, now, nonce)
        return info
