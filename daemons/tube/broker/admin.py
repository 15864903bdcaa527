"""The HTTP methods for administrators: `/broker.htm?method=…`, with the original's answers
(BrokerAdminServlet). Parameters have its names, long and short."""

import asyncio
import base64
import json
from collections.abc import Collection, Iterable
from typing import Any

from mq.daemons.tube.broker.answers import BadRecords, messages_of
from mq.daemons.tube.broker.listings import GROUP, TOPIC, UNKNOWN, Listings, listed
from mq.daemons.tube.broker.offsets import Key, TooManyOffsets
from mq.daemons.tube.broker.serving import Serving
from mq.daemons.tube.broker.store.layout import INDEX_SIZE
from mq.daemons.tube.broker.store.reading import ReadRequest, ThreadRead
from mq.daemons.tube.broker.store.topic_store import TopicStore
from mq.daemons.tube.web_methods import Method, Methods, RequestRefused, Result, WebRequest
from mq.protocol.tube.codes import Code
from mq.protocol.tube.errors import IllegalName
from mq.protocol.tube.messages import TransferedMessage
from mq.protocol.tube.names import check_group
from mq.protocol.tube.payload import decode, key_code

_FILTER_FACTOR = 5  # times as many records of the index, if a filter skips some
_INDEX_FACTOR = 10  # records of other partitions in between
_LIMIT = 1024 * 1024

PARTITION = ("partitionId", "pid")
MODIFIER = ("modifyUser", "mur")

_MOST_SNAPSHOT = 50  # messages

# Maximum number of offsets in one request: it is processed at once on the event loop.
MAX_CHANGES = 50_000


async def snapshot(
    store: TopicStore, partition: int, count: int, filters: Collection[str]
) -> list[TransferedMessage]:
    """Return at most ``count`` of the messages in the last records of the index.

    Raises OSError.
    """
    store.write_cached()
    codes = frozenset(map(key_code, filters)) if filters else None
    records = (count + 1) * _INDEX_FACTOR * (1 if codes is None else _FILTER_FACTOR)
    begin = max(store.min_index, store.max_index - records * INDEX_SIZE)
    wish = ReadRequest(partition, begin, codes, _LIMIT, store.max_index - begin, joined=False)
    reading = ThreadRead(store, wish)
    running = asyncio.ensure_future(asyncio.to_thread(reading.run))
    running.add_done_callback(lambda _: reading.end())
    found = await asyncio.shield(running)
    messages = []
    for piece in found.pieces:
        try:
            messages += messages_of(piece)
        except BadRecords:
            continue
    return messages[-count:]


class BrokerAdmin:
    """The methods of a broker."""

    def __init__(self, serving: Serving, token: str, version: str) -> None:
        self._serving = serving
        self._version = version
        listings = Listings(serving)
        named: dict[str, Method] = {
            "admin_get_methods": self.methods_known,
            "admin_query_server_version": self.server_version,
            "admin_query_offset": listings.offsets,
            "admin_query_group_offset": self.query_group_offset,
            "admin_set_offset": self.set_offset,
            "admin_clone_offset": self.clone_offset,
            "admin_rmv_offset": self.remove_offset,
            "admin_manual_set_current_offset": self.set_current_offset,
            "admin_snapshot_message": self.snapshot,
            "admin_get_partition_reginfo": listings.registrations,
            "admin_query_consumer_regmap": listings.registrations,
            "admin_query_broker_all_consumer_info": listings.consumers,
            "admin_get_group_detail_info": listings.consumers,
            "admin_query_pubinfo": listings.published,
            "admin_query_broker_all_store_info": listings.stores,
            "admin_get_booked_groupname": listings.groups,
            "admin_query_group": listings.groups,
        }
        changing = frozenset(
            name for name in named if name.split("_")[1] in ("set", "clone", "rmv", "manual")
        )
        long = frozenset(
            name for name, method in named.items() if getattr(method, "__self__", None) is listings
        )
        # Without a token requests need none: the settings allow that on loopback only.
        self.methods = Methods(named, changing, token or None, long=long)

    def methods_known(self, request: WebRequest) -> Result:
        found = [
            {"id": number, "method": name} for number, name in enumerate(self.methods.by_name, 1)
        ]
        return listed("dataSet", found, "totalCnt")

    def server_version(self, request: WebRequest) -> Result:
        data = [{"version": self._version}]
        return {"result": True, "errCode": 0, "errMsg": "Ok", "data": data}

    # offsets ----------------------------------------------------------------------------------

    def query_group_offset(self, request: WebRequest) -> Result:
        """Return the offset of a group in a partition."""
        key, store = self._partition(request)
        group = request.need(*GROUP)
        held = self._serving.offsets.of_group(group).get(key)
        found: dict[str, Any] = {
            "result": True,
            "errCode": 0,
            "errMsg": "OK!",
            "tmpOffset": held.pending if held else 0,
            "minOffset": store.min_index,
            "maxOffset": store.max_index,
            "minDataOffset": store.min_data,
            "maxDataOffset": store.max_data,
        }
        if request.flag("requireRealOffset", "dko", default=False):
            consumer = self._serving.consumers.get(group, *key)
            data = consumer.last_data if consumer is not None else UNKNOWN
            found |= {
                "zkOffset": held.offset if held else 0,
                "curReadDataOffset": data if data >= 0 else -1,
                "curRdDltDataOffset": store.max_data - data if data >= 0 else -1,
            }
        return found

    async def set_current_offset(self, request: WebRequest) -> Result:
        """Set the offset of a group in a partition."""
        (group,) = _groups([request.need(*GROUP)])
        request.need(*MODIFIER)
        offset = request.number("manualOffset", "offset")
        key, store = self._partition(request)
        for is_wrong, how, bound, sign in (
            (offset < store.min_index, "lower than Current MinOffset", store.min_index, "<"),
            (offset > store.max_index, "bigger than Current MaxOffset", store.max_index, ">"),
        ):
            if is_wrong:
                raise RequestRefused(
                    f"Invalid parameter: manualOffset {how}:({offset}{sign}{bound})"
                )
        (before,) = await self._replace([(group, key, offset)])
        text = "Manual update current Offset success!"
        return {"result": True, "errCode": 0, "errMsg": text, "oldOffset": before}

    async def set_offset(self, request: WebRequest) -> Result:
        """Set offsets of groups: to given values, or to the end of topics."""
        groups = _groups(request.items(*GROUP) or [request.need(*GROUP)])
        manual = request.flag("manualSet", "manSet")
        request.need(*MODIFIER)
        if manual:
            changes = self._given(request.need("offsetJsonInfo", "offsetInfo"))
        else:
            topics = request.items(*TOPIC) or [request.need(*TOPIC)]
            changes = [
                ((name, partition), store.max_index)
                for name in topics
                if (topic := self._serving.topics.get(name)) is not None
                for partition in topic.partition_ids()
                if (store := self._serving.stores.get(name, partition)) is not None
            ]
        _within_budget(len(groups) * len(changes))
        await self._replace([(group, key, offset) for group in groups for key, offset in changes])
        return {"result": True, "errCode": 0, "errMsg": "OK"}

    def _given(self, text: str) -> list[tuple[Key, int]]:
        """Return the offsets of `{"brokerId:topic:partition": offset}` for this broker."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise RequestRefused(f"Parameter offsetJsonInfo is no JSON: {error}") from None
        if not isinstance(document, dict):
            raise RequestRefused("Parameter offsetJsonInfo is no object")
        changes = []
        for name, offset in document.items():
            parts = [part.strip() for part in name.split(":")]
            if len(parts) != 3:
                raise RequestRefused(
                    f"Parameter offsetJsonInfo's key invalid:{name[:200]} must be "
                    "brokerId:topicName:partitionId !"
                )
            if not (parts[2].isascii() and parts[2].isdigit() and len(parts[2]) < 10):
                raise RequestRefused(
                    f"Parameter offsetJsonInfo's key invalid:{name[:200]}'s partitionId value not "
                    "number!"
                )
            if type(offset) is not int:
                raise RequestRefused(f"Parameter offsetJsonInfo: {name[:200]} has no number")
            store = self._store((parts[1], int(parts[2])))
            if parts[0] == str(self._serving.broker_id) and store is not None:
                bounded = max(store.min_index, min(offset, store.max_index))
                changes.append(((parts[1], int(parts[2])), bounded))
        if not changes:
            raise RequestRefused("Parameter offsetJsonInfo's value is invalid!")
        return changes

    async def clone_offset(self, request: WebRequest) -> Result:
        """Set groups to the offsets of another one."""
        source = request.need("sourceGroupName", "srcGroup")
        topics = request.items(*TOPIC)
        targets = request.items("targetGroupName", "tgtGroup")
        if not targets:
            request.need("targetGroupName", "tgtGroup")
        request.need(*MODIFIER)
        offsets = self._serving.offsets
        if source not in offsets:
            raise RequestRefused(
                f"Parameter sourceGroupName: {source[:200]} has not been registered on this Broker!"
            )
        _groups(targets)
        _within_budget(len(targets) * len(offsets.of_group(source)))
        changes = []
        for key, held in list(offsets.of_group(source).items()):
            store = self._store(key)
            if store is not None and (not topics or key[0] in topics):
                bounded = max(store.min_index, min(held.offset, store.max_index))
                changes += [(target, key, bounded) for target in targets]
        await self._replace(changes)
        return {"result": True, "errCode": 0, "errMsg": "OK"}

    async def remove_offset(self, request: WebRequest) -> Result:
        """Delete offsets of groups."""
        groups = request.items(*GROUP) or [request.need(*GROUP)]
        request.need(*MODIFIER)
        topics = request.items(*TOPIC)
        for group in groups:
            try:
                await self._serving.offsets.remove(group, frozenset(topics) or None)
            except OSError as error:
                raise RequestRefused(
                    f"the offsets cannot be saved: {error.strerror}", 500
                ) from None
        return {"result": True, "errCode": 0, "errMsg": "OK", "data": []}

    async def _replace(self, changes: Iterable[tuple[str, Key, int]]) -> list[int]:
        try:
            return await self._serving.offsets.replace(changes)
        except TooManyOffsets as many:
            raise RequestRefused(str(many), 401) from None
        except OSError as error:
            raise RequestRefused(f"the offsets cannot be saved: {error.strerror}", 500) from None

    # messages ---------------------------------------------------------------------------------

    async def snapshot(self, request: WebRequest) -> Result:
        """Return the newest messages of a partition."""
        name = request.need(*TOPIC)
        partition = request.number(*PARTITION, default=-1)
        count = max(request.number("msgCount", "cnt", default=3), 1)
        if count > _MOST_SNAPSHOT:
            raise RequestRefused(
                f"Over max allowed msgCount value, allowed count is {_MOST_SNAPSHOT}!"
            )
        if not self._serving.is_started or self._serving.reads.is_stopped:
            raise RequestRefused(
                "Read StoreService temporary unavailable!", Code.SERVICE_UNAVAILABLE
            )
        store = self._store((name, max(partition, 0)))
        if store is None:
            raise RequestRefused(
                f"Invalid parameter: not found the store by topicName + partitionId({name[:64]}:"
                f"{partition})!"
            )
        filters = request.items("filterConds", "flts")
        messages = await snapshot(store, max(partition, 0), count, filters)
        if not messages:
            raise RequestRefused(f"Could not find message at position by topic ({name})!", 401)
        found = []
        for number, message in enumerate(messages):
            body, attributes = decode(message.payLoadData, message.flag)
            data = base64.b64encode(body).decode()
            found.append({"index": number, "data": data, "attr": attributes})
        return {"result": True, "errCode": 0, "errMsg": "Success!", "dataSet": found}

    # ------------------------------------------------------------------------------------------

    def _store(self, key: Key) -> TopicStore | None:
        topic = self._serving.topics.get(key[0])
        return self._serving.stores.get(*key) if topic is not None and topic.has(key[1]) else None

    def _partition(self, request: WebRequest) -> tuple[Key, TopicStore]:
        name = request.need(*TOPIC)
        key = name, request.number(*PARTITION)
        if self._serving.topics.get(name) is None:
            raise RequestRefused("Invalid parameter: not found the topicName configure!")
        store = self._store(key)
        if store is None:
            raise RequestRefused("Invalid parameter: not found the store by topicName!")
        return key, store


def _groups(found: list[str]) -> list[str]:
    """Return the group names of a change. Raises RequestRefused."""
    try:
        return [check_group(name) for name in found]
    except IllegalName as error:
        raise RequestRefused(f"Parameter groupName: {error}") from None


def _within_budget(count: int) -> None:
    """Raises RequestRefused."""
    if count > MAX_CHANGES:
        raise RequestRefused(f"{count} offsets in one request: {MAX_CHANGES} may be")
