"""The lists of a broker by HTTP (BrokerAdminServlet): topics, stores, consumers, offsets of groups.

A broker has up to a million offsets, and any client may request all of them: lists that grow with
topics and groups are built in steps, between which other requests are served. So a list is not a
snapshot.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from mq.daemons.time_slices import TimeSlices
from mq.daemons.tube.broker.consumers import Consumer
from mq.daemons.tube.broker.offsets import Key
from mq.daemons.tube.broker.serving import Serving
from mq.daemons.tube.web_methods import Result, WebRequest

Row = dict[str, Any]

UNKNOWN = -2

GROUP = ("groupName", "group")
TOPIC = ("topicName", "topic")


class Listings:
    """The methods that return lists."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def stores(self, request: WebRequest) -> Result:
        """Return the stores of each topic: offsets and sizes."""
        wanted, steps = request.items(*TOPIC), TimeSlices()
        found: list[Row] = []
        for name in wanted or self._serving.stores.names():
            await steps.rest()
            topic = self._serving.topics.get(name)
            stores = [
                {
                    "storeId": number,
                    "numPartition": topic.partitions if topic else 0,
                    "minDataOffset": store.min_data,
                    "maxDataOffset": store.max_data,
                    "sizeInBytes": store.data.bytes(),
                    "partitionInfo": [
                        {
                            "partitionId": partition,
                            "minOffset": store.min_index,
                            "maxOffset": store.max_index,
                            "sizeInBytes": store.index.bytes(),
                        }
                        for partition in range(topic.partitions if topic else 0)
                    ],
                }
                for number, store in self._serving.stores.of_topic(name)
            ]
            if stores:
                found.append({"index": len(found) + 1, "topicName": name, "storeInfo": stores})
        return listed("dataSet", found, "totalCnt")

    async def published(self, request: WebRequest) -> Result:
        """Return the partitions of each topic: start and end."""
        wanted, steps = frozenset(request.items(*TOPIC)), TimeSlices()
        found: list[Row] = []
        for topic in list(self._serving.topics):
            await steps.rest()
            if wanted and topic.name not in wanted:
                continue
            offsets = [
                {
                    "partitionId": partition,
                    "offsetMin": store.min_index,
                    "offsetMax": store.max_index,
                    "dataMin": store.min_data,
                    "dataMax": store.max_data,
                }
                for partition in topic.partition_ids()
                if (store := self._serving.stores.get(topic.name, partition)) is not None
            ]
            if offsets:
                found.append(
                    {"topicName": topic.name, "offsetInfo": offsets, "itemCount": len(offsets)}
                )
        return listed("dataSet", found, "dataCount")

    async def registrations(self, request: WebRequest) -> Result:
        """Return the consumer of each partition."""
        found: list[Row] = []
        async for one in self._consumers(request):
            index = len(found) + 1
            found.append({"Partition": one.name, "Consumer": one.client_id, "index": index})
        return listed("dataSet", found, "totalCnt")

    async def _consumers(self, request: WebRequest) -> AsyncIterator[Consumer]:
        """Yield those of the requested groups, in steps."""
        wanted, steps = frozenset(request.items(*GROUP)), TimeSlices()
        for one in list(self._serving.consumers):
            await steps.rest()
            if not wanted or one.group in wanted:
                yield one

    async def consumers(self, request: WebRequest) -> Result:
        """Return the same with the progress and rate of each."""
        found: list[Row] = []
        async for one in self._consumers(request):
            entry: Row = {
                "index": len(found) + 1,
                "groupName": one.group,
                "topicName": one.topic,
                "partitionId": one.partition,
                "consumerId": one.client_id,
                "isRegOk": not self._serving.consumers.is_over(one),
                "lastRegTime": one.registered_ms,
                "isFilterConsume": one.codes is not None,
                "receivedFrom": one.address,
                "qryPriorityId": one.priority,
                "curDataLimitInM": one.limit // (1024 * 1024),
                "curFreqLimit": one.interval_ms,
                "totalSentSec": one.sent_slice,
                "isSupportLimit": True,
                "sentUnitSec": one.limit // 12,
                "totalSentMin": one.sent_stage,
                "sentUnit": one.unit,
                "isMessageStoreOk": False,
            }
            store = self._serving.stores.get(one.topic, one.partition)
            if store is not None:
                held = self._serving.offsets.of_group(one.group).get((one.topic, one.partition))
                entry |= {
                    "isMessageStoreOk": True,
                    "tmpOffset": held.pending if held else 0,
                    "minOffset": store.min_index,
                    "maxOffset": store.max_index,
                    "zkOffset": held.offset if held else 0,
                    "minDataOffset": store.min_data,
                    "maxDataOffset": store.max_data,
                }
            found.append(entry)
        return listed("dataSet", found, "totalCnt")

    async def groups(self, request: WebRequest) -> Result:
        """Return the groups with offsets here."""
        offsets = self._serving.offsets
        if not request.flag("divide", "withDivide", default=False):
            names = offsets.groups()
            found = [{"type": "all", "groupName": names, "groupCount": len(names)}]
        else:
            there = {one.group for one in self._serving.consumers}
            online = sorted(there)
            offline = [group for group in offsets.groups() if group not in there]
            found = [
                {"type": "online", "groupName": online, "groupCount": len(online)},
                {"type": "offline", "groupName": offline, "groupCount": len(offline)},
            ]
        return listed("dataSet", found, "dataCount")

    async def offsets(self, request: WebRequest) -> Result:
        """Return the offsets of groups in all partitions of their topics."""
        offsets = self._serving.offsets
        order = {name: place for place, name in enumerate(request.items(*TOPIC))}
        wanted = frozenset(order)
        steps = TimeSlices()
        groups = [g for g in request.items(*GROUP) or offsets.groups() if g in offsets]
        found: list[Row] = []
        for group in groups:
            await steps.rest()
            by_topic: dict[str, list[dict[str, int]]] = {}
            booked = {topic for topic, _ in offsets.of_group(group)}
            for name in (
                sorted(booked & wanted, key=order.__getitem__) if wanted else sorted(booked)
            ):
                await steps.rest()
                topic = self._serving.topics.get(name)
                if topic is not None:
                    by_topic[name] = [
                        self._position(group, (name, partition))
                        for partition in topic.partition_ids()
                    ]
            subscribed = [
                {"topicName": name, "offsets": parts, "partCount": len(parts)}
                for name, parts in by_topic.items()
            ]
            found.append({"groupName": group, "subInfo": subscribed, "topicCount": len(subscribed)})
        return listed("dataSet", found, "totalCnt")

    def _position(self, group: str, key: Key) -> dict[str, int]:
        held = self._serving.offsets.of_group(group).get(key)
        store = self._serving.stores.get(*key)
        consumer = self._serving.consumers.get(group, *key)
        data = consumer.last_data if consumer is not None and consumer.last_data >= 0 else UNKNOWN
        return {
            "partitionId": key[1],
            "curOffset": held.offset if held else UNKNOWN,
            "flightOffset": held.pending if held else UNKNOWN,
            "curDataOffset": data,
            "offsetLag": store.max_index - held.offset if store and held else UNKNOWN,
            "dataLag": store.max_data - data if store and data >= 0 else UNKNOWN,
            "offsetMax": store.max_index if store else UNKNOWN,
            "dataMax": store.max_data if store else UNKNOWN,
        }


def listed(name: str, found: list[Row], count: str) -> Mapping[str, Any]:
    """Return a list answer with its length."""
    return {
        "result": True,
        "errCode": 0,
        "errMsg": "Success!",
        name: found,
        count: len(found),
    }
