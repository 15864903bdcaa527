"""The identity of a TubeMQ client: user and password, and the tokens from masters.

Masters get an AuthenticateInfo that is signed for each request, and the token that they issued;
brokers get the master's visit token, and a separately signed text. The original's Java client sends
the token alone when it should send more (BaseMessageConsumer.genMasterCertificateInfo checks the
wrong condition), and its C++ client has stubs: this client always sends both.
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
    """A user of a TubeMQ cluster. Raises ClientError if either field is empty."""

    user: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.user.strip() or not self.password.strip():
            raise ClientError("a user and a password of TubeMQ must not be empty")


class Identity:
    """The credentials of one client, and the last tokens that it received."""

    def __init__(self, credentials: TubeCredentials | None) -> None:
        self._credentials = credentials
        self.visit_token: int = UNDEFINED
        self.token = ""

    def learn(self, given: MasterAuthorizedInfo) -> None:
        """Store the tokens in an answer of a master."""
        self.visit_token = given.visitAuthorizedToken
        if given.authAuthorizedToken.strip():
            self.token = given.authAuthorizedToken

    def for_master(self) -> MasterCertificateInfo | None:
        """Return the certificate for a request to a master; None without credentials."""
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
        """Return the authorization for a request to a broker: the visit token, and a signed token
        if there are credentials.
        """
        info = AuthorizedInfo(visitAuthorizedToken=self.visit_token)
        if self._credentials is not None:
            user, password = self._credentials.user, self._credentials.password
            now, nonce = clock.milliseconds(), random_ids.randrange(_NONCES)
            info.authAuthorizedToken = signature.broker_token(user, password, now, nonce)
        return info
