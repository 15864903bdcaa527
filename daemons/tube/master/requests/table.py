"""The answer of a master to each method: decode the request, check, answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.protobuf.message import Message

from mq.daemons.tube.master.core import Core, Peer
from mq.daemons.tube.master.groups import Refused
from mq.daemons.tube.master.requests import balanced, brokers, consumers, producers
from mq.daemons.tube.rpc import Call, Route
from mq.protocol.tube import messages
from mq.protocol.tube.codes import UNDEFINED, Method

# Characters of a refusal: some are from the client.
_MOST_TEXT = 4096


@dataclass(frozen=True, slots=True)
class _Entry:
    request: type[Message]
    answer: type[Message]
    handle: Callable[[Core, Any, Peer], Message]
    # Required fields of a refusal.
    refusal: Mapping[str, Any] = field(default_factory=lambda: {"success": False})


_PRODUCER = {"success": False, "brokerCheckSum": -1}
_BROKER = {"success": False, "stopRead": False, "stopWrite": False, "takeConfInfo": False}
_BROKER_HEARTBEAT = {
    **_BROKER,
    "needReportData": True,
    "takeRemoveTopicInfo": False,
    "curBrokerConfId": UNDEFINED,
    "confCheckSumId": UNDEFINED,
    "flowCheckId": UNDEFINED,
    "qryPriorityId": UNDEFINED,
}

TABLE: dict[Method, _Entry] = {
    Method.PRODUCER_REGISTER_P2M: _Entry(
        messages.RegisterRequestP2M, messages.RegisterResponseM2P, producers.register, _PRODUCER
    ),
    Method.PRODUCER_HEARTBEAT_P2M: _Entry(
        messages.HeartRequestP2M, messages.HeartResponseM2P, producers.heartbeat, _PRODUCER
    ),
    Method.PRODUCER_CLOSE_P2M: _Entry(
        messages.CloseRequestP2M, messages.CloseResponseM2P, producers.close
    ),
    Method.CONSUMER_REGISTER_C2M: _Entry(
        messages.RegisterRequestC2M, messages.RegisterResponseM2C, consumers.register
    ),
    Method.CONSUMER_HEARTBEAT_C2M: _Entry(
        messages.HeartRequestC2M, messages.HeartResponseM2C, consumers.heartbeat
    ),
    Method.CONSUMER_CLOSE_C2M: _Entry(
        messages.CloseRequestC2M, messages.CloseResponseM2C, consumers.close
    ),
    Method.BROKER_REGISTER_B2M: _Entry(
        messages.RegisterRequestB2M, messages.RegisterResponseM2B, brokers.register, _BROKER
    ),
    Method.BROKER_HEARTBEAT_B2M: _Entry(
        messages.HeartRequestB2M, messages.HeartResponseM2B, brokers.heartbeat, _BROKER_HEARTBEAT
    ),
    Method.BROKER_CLOSE_B2M: _Entry(
        messages.CloseRequestB2M, messages.CloseResponseM2B, brokers.close
    ),
    Method.CONSUMER_REGISTER_V2_C2M: _Entry(
        messages.RegisterRequestC2MV2, messages.RegisterResponseM2CV2, balanced.register, {}
    ),
    Method.CONSUMER_HEARTBEAT_V2_C2M: _Entry(
        messages.HeartRequestC2MV2, messages.HeartResponseM2CV2, balanced.heartbeat, {}
    ),
    Method.CONSUMER_GET_PART_META_C2M: _Entry(
        messages.GetPartMetaRequestC2M, messages.GetPartMetaResponseM2C, balanced.part_meta, {}
    ),
}


def routes(core: Core) -> dict[Method, Route]:
    """Return the routes for the listener."""
    return {
        method: Route(partial(_answer, core, entry), entry.request)
        for method, entry in TABLE.items()
    }


def _answer(core: Core, entry: _Entry, call: Call) -> Message:
    """Answer a request. Raises ServiceFailure from a standby."""
    try:
        return entry.handle(core, call.message, Peer(call.peer, call.tls))
    except Refused as refused:
        text = str(refused)[:_MOST_TEXT]
        return entry.answer(errCode=int(refused.code), errMsg=text, **entry.refusal)
