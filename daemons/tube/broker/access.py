"""Which clients may send and consume: settings of the master, visit tokens and consume rights.

Our master sends access data (`mq.protocol.tube.grants`): tokens of producers, tokens of consumers,
and the rights of groups. With it every request is checked completely. A master of Java sends two
numbers that are the time of day; then the checks are those of Java's broker
(SimpleCertificateBrokerHandler), which prove little.
"""

import asyncio
import hmac
import json
import logging
from collections.abc import Callable
from pathlib import Path

from google.protobuf.message import Message

from mq.client.machine import clock
from mq.daemons.state_file import read_with_backup, write_atomically
from mq.daemons.tube.calls import Call
from mq.daemons.tube.failed_logins import host_of
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.grants import Grants, Rights
from mq.protocol.tube.messages import AuthorizedInfo, EnableBrokerFunInfo

log = logging.getLogger(__name__)

# The file with the master's settings, in the folder of the store.
ACCESS_FILE = "access.json"
# Delay of the answer to a wrong token, in seconds: it slows down guessing.
REFUSAL_SECONDS = 1.0

_MOST_TOKENS = 6  # SimpleCertificateBrokerHandler.MAX_VISIT_TOKEN_SIZE
_NO_ORDERS = (False, False, False, False)
_ORDERS = ("visitTokens", "producers", "consumers", "rights")


class RequestError(Exception):
    """A refused request; ``code`` is sent to the client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def refuse_later(call: Call, denied: RequestError, answer: Message) -> Message | None:
    """Return the answer to a refused request; None if it is sent later, after a wrong token."""
    if denied.code != Code.CERTIFICATE_FAILURE:
        return answer
    asyncio.get_running_loop().call_later(REFUSAL_SECONDS, call.answer, answer)
    return None


class Access:
    """Checks requests.

    Args:
        grace_ms: with a master of Java, no token is refused for this time after a registration.
        path: stores the master's settings for the next start; None: they are not stored.

    `is_kept` is whether a master answers now.
    """

    def __init__(self, grace_ms: int, path: Path | None = None) -> None:
        self.checks_tokens = False
        self.authenticates_producers = False
        self.authenticates_consumers = False
        self.authorizes_consumers = False
        self.is_kept: Callable[[], bool] = lambda: False
        self.registered_ms = 0
        self.refused = 0
        self.rights_id = ""
        self._awaits_master = False  # the settings come from the file, and there are no tokens
        self._grace_ms = grace_ms
        self._path = path
        self._saved = _NO_ORDERS
        self._tokens: dict[int, None] = {}  # of a master of Java
        self._last = ""
        self._by_kind: dict[bool, dict[bytes, None]] = {}  # of our master; by "produces"
        self._rights: Rights | None = None

    def load(self) -> None:
        """Read the settings of the previous run.

        If they contain checks, no client is served until a master has sent its tokens. Raises
        OSError.
        """
        assert self._path is not None
        orders = read_with_backup(self._path, _decode)
        if orders is not None:
            self._set(orders)
            self._saved = orders
            self._awaits_master = any(orders)

    def configure(self, checks: EnableBrokerFunInfo) -> bool:
        """Use the settings of a registration; return whether they must be saved."""
        tokens = self.checks_tokens
        if checks.HasField("enableVisitTokenCheck"):
            tokens = checks.enableVisitTokenCheck
        self._set(
            (
                tokens,
                checks.enableProduceAuthenticate,
                checks.enableConsumeAuthenticate,
                checks.enableConsumeAuthorize,
            )
        )
        self._awaits_master = False
        self._warn_of_java()
        return self._orders_to_save() != self._saved

    def save(self) -> None:
        """Save the settings for the next start; a failure is logged. For a thread."""
        if self._path is None:
            return
        try:
            orders = self._orders_to_save()
            content = json.dumps(dict(zip(_ORDERS, orders, strict=True)))
            write_atomically(self._path, content.encode())
            self._saved = orders
        except OSError as error:
            log.error("cannot save the master's settings: %s", error)

    # access data ------------------------------------------------------------------------------

    def add_tokens(self, text: str) -> None:
        """Add the tokens of a master of Java (`valid,fresh`)."""
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

    def take_grants(self, text: str) -> bool:
        """Use the access data of our master, "" from Java's; return whether the rights have
        changed.

        Known tokens stay valid until newer ones replace them, so that a client of a failed master
        is served until it has registered at the next one.
        """
        if not text:
            self._by_kind.clear()
            self.rights_id, self._rights = "", None
            return False
        try:
            grants = Grants.parse(text)
        except MalformedText as error:
            log.error("the master's access data is not understood: %s", error)
            return False
        for produces, tokens in ((True, grants.produce), (False, grants.consume)):
            known = self._by_kind.setdefault(produces, {})
            for token in tokens:
                known.pop(_packed(token), None)
                known[_packed(token)] = None
            while len(known) > _MOST_TOKENS:
                del known[next(iter(known))]
        changed = grants.rights_id != self.rights_id
        if grants.rights is not None:
            self.rights_id, self._rights = grants.rights_id, grants.rights
        elif not grants.rights_id:
            self.rights_id, self._rights = "", None
        return changed

    # checks -----------------------------------------------------------------------------------

    @property
    def checks_consumers(self) -> bool:
        """Whether consumers must send a token."""
        return self.checks_tokens or self.authenticates_consumers

    def check(self, info: AuthorizedInfo, *, produces: bool) -> None:
        """Raises Denied. A request without authInfo has protobuf's defaults, as in Java."""
        self.check_tokens(info.visitAuthorizedToken, info.authAuthorizedToken, produces=produces)

    def check_tokens(self, visit: int, authentication: str, *, produces: bool) -> None:
        """Check the tokens of a request. Raises Denied."""
        if self._awaits_master:
            raise RequestError(
                Code.SERVICE_UNAVAILABLE,
                "this broker has no visit tokens yet: no master has answered since its start",
            )
        authenticates = self.authenticates_producers if produces else self.authenticates_consumers
        if self._by_kind:
            # Our master gives this token only to clients of this kind that it has authenticated.
            if (self.checks_tokens or authenticates) and not self._knows(visit, produces=produces):
                raise self._denied("Visit Authorized Token is invalid!")
            return
        if (
            self.checks_tokens
            and visit not in self._tokens
            and self.is_kept()
            and clock.milliseconds() - self.registered_ms > self._grace_ms
        ):
            raise self._denied("Visit Authorized Token is invalid!")
        if authenticates and not authentication.strip():
            raise self._denied("authAuthorizedToken is Blank!")

    def check_rights(self, group: str, topic: str, items: frozenset[str]) -> None:
        """Check that a group may consume a topic, with these filter items. Raises Denied."""
        if not self.authorizes_consumers or self._rights is None:
            return
        right = self._rights.get(topic)
        if right is None:
            return
        if not right.permits(group):
            raise RequestError(
                Code.CONSUME_GROUP_FORBIDDEN,
                f"[unAuthorized Group] {group} may not consume the topic {topic}",
            )
        if not right.permits_items(group, items):
            raise RequestError(
                Code.CONSUME_CONTENT_FORBIDDEN,
                f"[Restricted Group] {group} may not consume the topic {topic} with these filter "
                "items",
            )

    def check_origin(self, registered: str, host: str) -> None:
        """Check that a request without a token comes from the host of `registered`, "host:port".

        A client id is not secret: refusals to others contain it. Raises Denied.
        """
        if self.checks_consumers and host_of(registered) != host:
            raise RequestError(
                Code.HB_NO_NODE, f"{host} has not registered this consumer, register firstly!"
            )

    def _knows(self, visit: int, *, produces: bool) -> bool:
        """Compare with every token, so that the time does not depend on the token."""
        shown, found = _packed(visit), False
        for token in self._by_kind[produces]:
            found |= hmac.compare_digest(token, shown)
        return found

    def _denied(self, text: str) -> RequestError:
        self.refused += 1
        return RequestError(Code.CERTIFICATE_FAILURE, text)

    def _orders(self) -> tuple[bool, bool, bool, bool]:
        return (
            self.checks_tokens,
            self.authenticates_producers,
            self.authenticates_consumers,
            self.authorizes_consumers,
        )

    def _orders_to_save(self) -> tuple[bool, bool, bool, bool]:
        """Java's masters have none: their brokers serve all clients while no master answers."""
        return self._orders() if self._by_kind else _NO_ORDERS

    def _set(self, orders: tuple[bool, bool, bool, bool]) -> None:
        (
            self.checks_tokens,
            self.authenticates_producers,
            self.authenticates_consumers,
            self.authorizes_consumers,
        ) = orders

    def _warn_of_java(self) -> None:
        if any(self._orders()) and not self._by_kind:
            log.warning(
                "the master asks for checks of clients but sends no access data; Java's masters "
                "have none. Visit tokens can be guessed, any authAuthorizedToken is accepted and "
                "groups are not authorized here: use mq's master"
            )


def _packed(token: int) -> bytes:
    return token.to_bytes(8, "big", signed=True)


def _decode(data: bytes) -> tuple[bool, bool, bool, bool]:
    try:
        found = json.loads(data)
        tokens, producers, consumers, rights = (found[name] for name in _ORDERS)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no orders of a master: {error}") from None
    return bool(tokens), bool(producers), bool(consumers), bool(rights)
