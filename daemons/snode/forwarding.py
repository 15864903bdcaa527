"""Forwarding: a client's request goes to the enode that it is for, and what comes of it back.

    enode      by the request's own field (`n` of a send, `enodeName`, `bname` of a client of 5.x),
               else by the port that it came to (enodePorts), else defaultEnode, else the only one
    opaque     is renumbered: two clients may use the same, and all share a connection
    body       is passed on as bytes, in both directions
    failure    an enode that is not known or not there, one that does not answer in time, a
               connection that ends: each is answered, with SERVICE_NOT_AVAILABLE, so that no
               client waits for a reply that will not come. (The snode branch sends none.)

Nothing is awaited for a request: a `ForwardedRequest` stands for it among the requests of the
connection to the enode, as a future does for the snode's own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from mq.client.errors import MQError, RequestTimeout
from mq.client.machine.clock import perf_counter
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused, error_reply
from mq.daemons.snode.config import SnodeConfig
from mq.daemons.snode.enodes import Enodes, unavailable
from mq.daemons.snode.interceptors import InterceptorGroup
from mq.daemons.snode.latencies import Latencies
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import RESPONSE, Command
from mq.protocol.errors import LocalProtocolError
from mq.protocol.headers.send import Letter
from mq.protocol.names import MASTER_ID
from mq.protocol.signature import SIGNATURE

log = logging.getLogger(__name__)

ENODE_NAME = "enodeName"
_BROKER_NAME = "bname"  # of RpcRequestHeader of 5.x
# Of the answer to a pull: where to read next. A snode's clients see one broker of each name, and it
# asks masters only.
SUGGESTION = "suggestWhichBrokerId"
# About what a request takes that is at an enode, besides its body: its fields, its place.
_COST = 2048
# Fields of more characters cost more. So does the text of a pull's subscription: one that is long
# is read for this pull alone, and a broker keeps of it so many bytes for each character
# (mq.daemons.broker.reading.long_polling).
_LONG = 1000
_EXPRESSION = "subscription"
_BYTES_OF_LONG = 20

#: Called with the response of an enode before it goes to the client.
OnAnswer = Callable[[Command], None]


def _cost_of_texts(fields: Mapping[str, str]) -> int:
    """What long fields take here and at the enode, in bytes."""
    size = sum(map(len, fields.values()))
    if size <= _LONG:
        return 0
    expression = len(fields.get(_EXPRESSION, ""))
    return size + (_BYTES_OF_LONG * expression if expression > _LONG else 0)


class ForwardedRequest:
    """A request of a client that is at an enode."""

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
        """`sent` is what the enode gets, over the connection `slot`."""
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
        """The enode has answered, whatever that is."""
        self.forwarding.answered(self, response)

    def set_exception(self, error: MQError, /) -> None:
        """It has not, and will not."""
        self.forwarding.failed(self, error)


class Forwarding:
    """Sends clients' requests to enodes, and relays answers.

    `count_forwarded` and `failures` are by request code. `server` is the group of interceptors
    around every request: what is forwarded ends here, and not where it began.
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
        self.brief = 0  # of them, those that no enode holds
        #: About the bytes that enodes hold of pulls, by enode and connection.
        self.held: Counter[tuple[str, int]] = Counter()
        self._settled = asyncio.Event()
        # What waits until it is known where an enode is, in its order: who sends it, who is told.
        self._late: dict[str, list[tuple[Callable[[str], None], asyncio.Future[None]]]] = {}

    # where to -------------------------------------------------------------------------------

    def enode_of(self, fields: Mapping[str, str], channel: Channel, own: str = ENODE_NAME) -> str:
        """The name of the enode that a request is for, which need not be known. `own` is the field
        that says so. Raises Refused where nothing says it."""
        name = fields.get(own) or fields.get(_BROKER_NAME) or fields.get(ENODE_NAME)
        name = name or self.enode_alone(channel)
        if name:
            return name
        raise Refused(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            f"the request names none of {len(self._enodes.masters)} enodes: a client that knows no "
            "snodes needs a port of its own for each (enodePorts), or defaultEnode",
        )

    def enode_alone(self, channel: Channel) -> str | None:
        """The enode of a request that names none: by its port, or the only one there is."""
        name = self._ports().get(channel.local_address[1]) or self._config().default_enode
        masters = self._enodes.masters
        return name or (next(iter(masters)) if len(masters) == 1 else None)

    # there and back -------------------------------------------------------------------------

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
        """Send a request on, with these fields, to an enode; what comes of it goes to the client.

        Awaitable only while it is not known where the enode is. Raises Refused.
        """
        address = self._enodes.masters.get(enode)
        more = (command, channel, enode, fields, code, seconds, slot, groups, on_answer)
        if address is None or self.is_looked_for(enode):
            return self._forward_later(enode, lambda found: self._send(found, *more))
        self._send(address, *more)
        return None

    def is_looked_for(self, enode: str) -> bool:
        """Whether requests wait until it is known where an enode is: none may overtake them."""
        return enode in self._late

    async def _forward_later(self, enode: str, send: Callable[[str], None]) -> None:
        late = self._late.get(enode)
        if late is None:
            late = self._late[enode] = []
            self._enodes.session.keep_task(self._look_for(enode))
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        late.append((send, sent))
        await sent

    async def _look_for(self, enode: str) -> None:
        """Send what waits for an enode, in the order in which it came, or refuse it."""
        address = None
        try:
            address = await self._enodes.look_for(enode)
        finally:
            for send, sent in self._late.pop(enode):
                if sent.done():
                    continue  # nobody waits any more
                try:
                    if address is None:
                        raise unavailable(enode, "no name server knows a master of it")
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
            # A one-way request is asked as one that is answered: whether it came is seen then.
            self._enodes.forward(address, request, seconds, forwarded, slot)
        except MQError as error:
            raise unavailable(enode, error) from None
        except LocalProtocolError as error:  # it does not fit a frame any more
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        channel.reserve(forwarded.cost)
        self.in_flight += 1
        self.brief += brief
        if not brief:
            self.held[enode, slot] += forwarded.cost

    def answered(self, forwarded: ForwardedRequest, response: Command) -> None:
        """Relay what an enode has answered."""
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
            except Exception:  # the client has its reply; the connection goes on
                log.exception("request %d: what follows its answer failed", request.code)

    def failed(self, forwarded: ForwardedRequest, error: MQError) -> None:
        """Tell a client that its enode does not answer."""
        request, channel = forwarded.request, forwarded.channel
        self._ended(forwarded)
        self.failures[request.code] += 1
        if not isinstance(error, RequestTimeout):
            self._enodes.look_soon()
        log.warning("request %d of %s: enode %s: %s", request.code, channel.remote,
                    forwarded.enode, error,
                    extra={"failure": f"enode {forwarded.enode}"})  # fmt: skip
        refusal = unavailable(forwarded.enode, error)
        for group in (*forwarded.groups, self._server):
            group.failed(request, channel, refusal)
        self._reply(request, channel, error_reply(request, refusal))

    # what went the native way (see `relay`) is counted here, too

    def relay_began(self, count: int) -> None:
        """So many sends are on their way."""
        self.in_flight += count
        self.brief += count

    def relay_answered(self, count: int, seconds: float) -> None:
        """So many were answered, the oldest after so long."""
        self.latencies.took(RequestCode.SEND_MESSAGE_V2, seconds, count)
        self._relay_ended(count)

    def relay_failed(self, code: int) -> None:
        """One was not."""
        self.failures[code] += 1
        self._enodes.look_soon()
        self._relay_ended(1)

    def _relay_ended(self, count: int) -> None:
        self.in_flight -= count
        self.brief -= count
        if not self.brief:
            self._settled.set()

    def _ended(self, forwarded: ForwardedRequest) -> None:
        self.in_flight -= 1
        forwarded.channel.reserve(-forwarded.cost)
        if forwarded.brief:
            self.brief -= 1
            if not self.brief:
                self._settled.set()
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
        """Wait at most so long for the sends and offsets that are at enodes: pulls may be held."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self.brief and loop.time() < end:
            self._settled.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._settled.wait()
            except TimeoutError:
                log.warning("%d requests are left unanswered", self.brief)

    # what is changed on the way ---------------------------------------------------------------

    def may_change(self, fields: Mapping[str, str]) -> bool:
        """Whether a header may be changed: not where its sender's signature has to stay good."""
        return self._enodes.signs or SIGNATURE not in fields

    def with_hosts(
        self, fields: Mapping[str, str], channel: Channel, snode: str
    ) -> Mapping[str, str]:
        """The fields of a send that say where it comes from: what a client says of that is not
        believed. What is signed goes as it is; but not what lies, whatever becomes of its
        signature: an enode without access control looks at none, and would believe it."""
        if not self.may_change(fields):
            if Letter.BORN_HOST in fields or Letter.SNODE_HOST in fields:
                said = (Letter.BORN_HOST, Letter.SNODE_HOST)
                return {name: text for name, text in fields.items() if name not in said}
            return fields
        return {**fields, Letter.BORN_HOST: channel.remote, Letter.SNODE_HOST: snode}
