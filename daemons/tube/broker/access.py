"""Who may send and read: what the master has enabled, and the visit tokens that it has told."""

from collections.abc import Callable

from mq.client.machine import clock
from mq.protocol.tube.codes import Code
from mq.protocol.tube.messages import AuthorizedInfo, EnableBrokerFunInfo

_MOST_TOKENS = 6  # SimpleCertificateBrokerHandler.MAX_VISIT_TOKEN_SIZE


class Denied(Exception):
    """A request is not served; ``code`` is what its sender is told."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Access:
    """What is checked of each request. ``is_kept`` says whether a master answers us now."""

    def __init__(self, grace_ms: int) -> None:
        self.checks_tokens = False
        self.authenticates_producers = False
        self.authenticates_consumers = False
        self.is_kept: Callable[[], bool] = lambda: False
        self.registered_ms = 0
        self.refused = 0
        self._grace_ms = grace_ms
        self._tokens: dict[int, None] = {}
        self._last = ""

    def configure(self, checks: EnableBrokerFunInfo) -> None:
        """What the master wants checked."""
        if checks.HasField("enableVisitTokenCheck"):
            self.checks_tokens = checks.enableVisitTokenCheck
        self.authenticates_producers = checks.enableProduceAuthenticate
        self.authenticates_consumers = checks.enableConsumeAuthenticate

    def add_tokens(self, text: str) -> None:
        """Know the tokens of a master's answer, too (`valid,fresh`)."""
        if text == self._last:
            return
        self._last = text
        for item in text.split(","):
            item = item.strip()
            if item.lstrip("-").isdigit() and item.isascii() and len(item) < 20:
                self._tokens.pop(int(item), None)
                self._tokens[int(item)] = None
        while len(self._tokens) > _MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]

    def check(self, info: AuthorizedInfo, *, produces: bool) -> None:
        """Raises Denied. A request without authInfo has one of protobuf's defaults, as in Java."""
        self.check_tokens(info.visitAuthorizedToken, info.authAuthorizedToken, produces=produces)

    def check_tokens(self, visit: int, authentication: str, *, produces: bool) -> None:
        """Raises Denied (SimpleCertificateBrokerHandler.identityValidUserInfo)."""
        if (
            self.checks_tokens
            and visit not in self._tokens
            and self.is_kept()
            and clock.milliseconds() - self.registered_ms > self._grace_ms
        ):
            self.refused += 1
            raise Denied(Code.CERTIFICATE_FAILURE, "Visit Authorized Token is invalid!")
        authenticates = self.authenticates_producers if produces else self.authenticates_consumers
        if authenticates and not authentication.strip():
            self.refused += 1
            raise Denied(Code.CERTIFICATE_FAILURE, "authAuthorizedToken is Blank!")
