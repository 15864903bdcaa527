"""Forwarding: sends a client's request to its enode, and the reply back.

  enode      by the request's own field (`n` of a send, `enodeName`, `bname` of a client of 5.x),
             else by the port that received it (enodePorts), else defaultEnode, else the only one
  opaque     is renumbered: two clients may use the same one, and all share a connection
  body       is passed on as bytes, in both directions
  failure    an unknown or unavailable enode, a timeout, or the end of a connection: each is
             answered with SERVICE_NOT_AVAILABLE, so that no client waits for a reply that will
             not come. (The snode branch sends none.)

No coroutine is awaited for a request: a `ForwardedRequest` represents it among the requests of the
connection to the enode, like a future for the snode's own requests.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping

from mq.client.errors import MQError, RequestTimeout
from mq.client.machine.clock import perf_counter
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused, error_reply
from mq.daemons.snode.config import SnodeConfig
from mq.daemons.snode.enodes import Enodes, unavailable
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import RESPONSE, Command
from mq.protocol.errors import LocalProtocolError
from mq.protocol.headers.send import Letter
from mq.protocol.names import MASTER_ID
from mq.protocol.signature import SIGNATURE

log = logging.getLogger(__name__)

QUANTILES = (0.5, 0.9, 0.99)
# Number of replies per code from which quantiles are computed.
_LAST = 2048

ENODE_NAME = "enodeName"
_BROKER_NAME = "bname"  # of RpcRequestHeader of 5.x
# In the reply to a pull: the broker for the next pull. A snode's clients see one broker of each
# name, and it asks only masters.
SUGGESTION = "suggestWhichBrokerId"
# Approximate memory of a request at an enode, without its body: its fields and its entry.
_COST = 2048
# Longer fields (in characters) cost more. So does the text of a pull's subscription: a long one is
# parsed for this pull alone, and a broker keeps so many bytes per character of it
# (mq.daemons.broker.pull.long_polling).
_LONG = 1000
_EXPRESSION = "subscription"
_BYTES_OF_LONG = 20

# Called with the response of an enode before the client gets it.
OnAnswer = Callable[[Command], None]


class Latencies:
    """`counts` has the number of replies by request code."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._last: dict[int, deque[float]] = {}

    def took(self, code: int, seconds: float, requests: int = 1) -> None:
        """Count a reply of an enode; for several requests `seconds` is the time of the oldest."""
        self.counts[code] += requests
        last = self._last.get(code)
        if last is None:
            last = self._last[code] = deque(maxlen=_LAST)
        last.append(seconds)

    def quantiles(self) -> Iterator[tuple[int, float, float]]:
        """Code, quantile and seconds."""
        for code, last in self._last.items():
            ordered = sorted(last)
            for quantile in QUANTILES:
                yield code, quantile, ordered[min(len(ordered) - 1, int(quantile * len(ordered)))]


def _cost_of_texts(fields: Mapping[str, str]) -> int:
    """Memory of long fields, here and at the enode, in bytes."""
    size = sum(map(len, fields.values()))
    if size <= _LONG:
        return 0
    expression = len(fields.get(_EXPRESSION, ""))
    return size + (_BYTES_OF_LONG * expression if expression > _LONG else 0)


class ForwardedRequest:
    """A client's request that is at an enode."""

    __slots__ = ("began", "brief", "channel", "cost", "enode", "forwarding", "groups", "on_answer",
                 "request", "slot")  # fmt: skip

    def __init__(
        self,
        forwarding: "Forwarding",
        request: Command,
        channel: Channel,
        enode: str,
        groups: tuple[InterceptorGroup, ...],
        on_answer: OnAnswer | None,
        brief: bool,
        slot: int,
        sent: Command,
    ) -> None:
        """`sent` is the request for the enode, over the connection `slot`."""
        self.forwarding = forwarding
        self.brief = brief
        self.slot = slot
        self.request = request
        self.channel = channel
        self.enode = enode
        self.groups = groups
        self.on_answer = on_answer
        self.cost = _COST + len(request.body) + _cost_of_texts(sent.fields)
        self.began = perf_counter()

    def done(self) -> bool:
        return False

    def set_result(self, response: Command, /) -> None:
        """Handle the enode's reply."""
        self.forwarding.answered(self, response)

    def set_exception(self, error: MQError, /) -> None:
        """Handle a failure: there will be no reply."""
        self.forwarding.failed(self, error)


class Forwarding:
    """Sends clients' requests to enodes, and relays replies.

    `latencies` and `failures` are by request code. `server` is the group of interceptors
    around every request: a forwarded request ends here, not in the handler.
    """

    def __init__(
        self,
        config: Callable[[], SnodeConfig],
        enodes: Enodes,
        server: InterceptorGroup,
        port_of: Callable[[], Mapping[int, str]] = dict,
    ) -> None:
        """`port_of` has the ports that stand for enodes."""
        self._config = config
        self._enodes = enodes
        self._server = server
        self._ports = port_of
        self.latencies = Latencies()
        self.failures: Counter[int] = Counter()
        self.in_flight = 0
        self.brief = 0  # number of those that no enode suspends
        # Approximate memory of pulls at enodes, by enode and connection.
        self.held: Counter[tuple[str, int]] = Counter()
        self._drained = asyncio.Event()
        # Requests that wait for the address of an enode, in order: the function that sends, and the
        # future of the caller.
        self._late: dict[str, list[tuple[Callable[[str], None], asyncio.Future[None]]]] = {}

    # destination -------------------------------------------------------------------------------

    def enode_of(self, fields: Mapping[str, str], channel: Channel, own: str = ENODE_NAME) -> str:
        """The name of a request's enode, which may be unknown. `own` is the field with the name.
        Raises Refused if the request does not determine it.
        """
        name = fields.get(own) or fields.get(_BROKER_NAME) or fields.get(ENODE_NAME)
        name = name or self.enode_alone(channel)
        if name:
            return name
        raise Refused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the request names none of {len(self._enodes.masters)} enodes: a client without "
            "support of snodes needs a port for each of them (enodePorts), or defaultEnode",
        )

    def enode_alone(self, channel: Channel) -> str | None:
        """The enode of a request that names none: by its port, or the only one."""
        name = self._ports().get(channel.local_address[1]) or self._config().default_enode
        masters = self._enodes.masters
        return name or (next(iter(masters)) if len(masters) == 1 else None)

    # requests and replies -------------------------------------------------------------------------

    def forward(
        self,
        command: Command,
        channel: Channel,
        enode: str,
        fields: Mapping[str, str],
        *,
        code: int | None = None,
        seconds: float | None = None,
        slot: int = 0,
        groups: tuple[InterceptorGroup, ...] = (),
        on_answer: OnAnswer | None = None,
    ) -> Awaitable[None] | None:
        """Send a request with these fields to an enode; the client gets the result.

        Awaitable only while the address of the enode is unknown. Raises Refused.
        """
        address = self._enodes.masters.get(enode)
        more = (command, channel, enode, fields, code, seconds, slot, groups, on_answer)
        if address is None or self.has_waiting(enode):
            return self._forward_later(enode, lambda found: self._send(found, *more))
        self._send(address, *more)
        return None

    def has_waiting(self, enode: str) -> bool:
        """Whether requests wait for the address of an enode: no other request may overtake them."""
        return enode in self._late

    async def _forward_later(self, enode: str, send: Callable[[str], None]) -> None:
        late = self._late.get(enode)
        if late is None:
            late = self._late[enode] = []
            self._enodes.session.keep_task(self._find(enode))
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        late.append((send, sent))
        await sent

    async def _find(self, enode: str) -> None:
        """Find an enode, and send the waiting requests in their order, or refuse them."""
        address = None
        try:
            address = await self._enodes.find(enode)
        finally:
            for send, sent in self._late.pop(enode):
                if sent.done():
                    continue  # the caller does not wait any more
                try:
                    if address is None:
                        raise unavailable(enode, "no name server has a master of it")
                    send(address)
                except Exception as error:
                    sent.set_exception(error)
                else:
                    sent.set_result(None)

    def _send(
        self,
        address: str,
        command: Command,
        channel: Channel,
        enode: str,
        fields: Mapping[str, str],
        code: int | None,
        seconds: float | None,
        slot: int,
        groups: tuple[InterceptorGroup, ...],
        on_answer: OnAnswer | None,
    ) -> None:
        request = Command(
            command.code if code is None else code,
            fields,
            command.body,
            language=command.language,
            version=command.version,
        )
        brief = seconds is None
        forwarded = ForwardedRequest(
            self, command, channel, enode, groups, on_answer, brief, slot, request
        )
        if seconds is None:
            seconds = self._config().enode_request_timeout / 1000
        try:
            # A one-way request is sent as one with a reply, which shows whether it arrived.
            self._enodes.forward(address, request, seconds, forwarded, slot)
        except MQError as error:
            raise unavailable(enode, error) from None
        except LocalProtocolError as error:  # it no longer fits a frame
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        channel.reserve(forwarded.cost)
        self.in_flight += 1
        self.brief += brief
        if not brief:
            self.held[enode, slot] += forwarded.cost

    def answered(self, forwarded: ForwardedRequest, response: Command) -> None:
        """Relay the reply of an enode."""
        request, channel = forwarded.request, forwarded.channel
        self._ended(forwarded)
        self.latencies.took(request.code, perf_counter() - forwarded.began)
        response.opaque = request.opaque
        response.flag = RESPONSE
        response.serialization = request.serialization
        if SUGGESTION in response.fields:
            response.fields = {**response.fields, SUGGESTION: str(MASTER_ID)}
        for group in forwarded.groups:
            group.after(request, channel, response)
        if self._server:
            self._server.after(request, channel, response)
        self._reply(request, channel, response)
        if forwarded.on_answer is not None:
            try:
                forwarded.on_answer(response)
            except Exception:  # the client has its reply; the connection continues
                log.exception("request %d: processing its reply failed", request.code)

    def failed(self, forwarded: ForwardedRequest, error: MQError) -> None:
        """Answer a client whose enode does not reply."""
        request, channel = forwarded.request, forwarded.channel
        self._ended(forwarded)
        self.failures[request.code] += 1
        if not isinstance(error, RequestTimeout):
            self._enodes.refresh_soon()
        log.warning("request %d of %s: enode %s: %s", request.code, channel.remote,
                    forwarded.enode, error,
                    extra={"failure": f"enode {forwarded.enode}"})  # fmt: skip
        refusal = unavailable(forwarded.enode, error)
        for group in (*forwarded.groups, self._server):
            group.failed(request, channel, refusal)
        self._reply(request, channel, error_reply(request, refusal))

    # requests on the native path (see `relay`) are counted here, too

    def relay_began(self, count: int) -> None:
        """Count sends that have been relayed."""
        self.in_flight += count
        self.brief += count

    def relay_answered(self, count: int, seconds: float) -> None:
        """Count replies to relayed sends; `seconds` is the time of the oldest."""
        self.latencies.took(RequestCode.SEND_MESSAGE_V2, seconds, count)
        self._relay_ended(count)

    def relay_failed(self, code: int) -> None:
        """Count a relayed send without a reply."""
        self.failures[code] += 1
        self._enodes.refresh_soon()
        self._relay_ended(1)

    def _relay_ended(self, count: int) -> None:
        self.in_flight -= count
        self.brief -= count
        if not self.brief:
            self._drained.set()

    def _ended(self, forwarded: ForwardedRequest) -> None:
        self.in_flight -= 1
        forwarded.channel.reserve(-forwarded.cost)
        if forwarded.brief:
            self.brief -= 1
            if not self.brief:
                self._drained.set()
            return
        place = forwarded.enode, forwarded.slot
        self.held[place] -= forwarded.cost
        if not self.held[place]:
            del self.held[place]

    def _reply(self, request: Command, channel: Channel, response: Command) -> None:
        if request.is_one_way or channel.closed:
            return
        try:
            channel.send(response)
        except LocalProtocolError as error:
            channel.send(error_reply(request, error))

    async def finish(self, seconds: float) -> None:
        """Wait a limited time for sends and offsets at enodes; pulls may be suspended."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.brief and loop.time() < end:
            self._drained.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._drained.wait()
            except TimeoutError:
                log.warning("%d requests remain unanswered", self.brief)

    # changes of requests ---------------------------------------------------------------

    def may_change(self, fields: Mapping[str, str]) -> bool:
        """Whether a header may be changed: not if its sender's signature must stay valid."""
        return self._enodes.signs or SIGNATURE not in fields

    def with_hosts(
        self, fields: Mapping[str, str], channel: Channel, snode: str
    ) -> Mapping[str, str]:
        """The fields of a send with its origin, replacing the client's values, which are not
        trusted.

        A signed send is not changed, except that forged origin fields are removed, even though that
        breaks its signature: an enode without access control does not check it and would trust the
        fields.
        """
        if not self.may_change(fields):
            if Letter.BORN_HOST in fields or Letter.SNODE_HOST in fields:
                said = (Letter.BORN_HOST, Letter.SNODE_HOST)
                return {name: text for name, text in fields.items() if name not in said}
            return fields
        return {**fields, Letter.BORN_HOST: channel.remote, Letter.SNODE_HOST: snode}
