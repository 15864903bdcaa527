"""Parameters of administrators' requests: names, long and short, limits and checks.

Names and limits are those of TubeMQ's WebFieldDef and WebParameterUtils.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from mq.client.machine import clock
from mq.daemons.tube.master.records import SYSTEM_TOPIC, Audit, Props
from mq.daemons.tube.web_methods import RequestRefused, WebRequest
from mq.protocol.tube import names
from mq.protocol.tube.codes import UNDEFINED
from mq.protocol.tube.errors import IllegalName, MalformedText
from mq.protocol.tube.flow_control import FlowControl

# Items of a list, and records of a batch, in one request.
MOST_ITEMS = 1000

_USER = re.compile(r"[a-zA-Z]\w{1,63}", re.ASCII)
_IPV4 = re.compile(
    r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)", re.ASCII
)
_DATE = re.compile(r"\d{14}", re.ASCII)
_POLICY = re.compile(r"delete,\d{1,9}[hms]?", re.ASCII)
_PRIORITIES = (1, 2, 3)
# Attribute, names, minimum and maximum of a topic's properties.
_PROPS = (
    ("num_topic_stores", ("numTopicStores", "numStore"), 1, 100),
    ("num_partitions", ("numPartitions", "numPart"), 1, 9_999),
    ("unflush_threshold", ("unflushThreshold", "unfDskMsgCnt"), 0, None),
    ("unflush_interval", ("unflushInterval", "unfDskInt"), 1, None),
    ("unflush_data_hold", ("unflushDataHold", "unfDskDataSize"), 0, None),
    ("mem_cache_msg_size_in_mb", ("memCacheMsgSizeInMB", "cacheSizeInMB"), 2, 2048),
    ("mem_cache_flush_intvl", ("memCacheFlushIntvl", "unfMemInt"), 4000, None),
    ("mem_cache_msg_cnt_in_k", ("memCacheMsgCntInK", "unfMemMsgCnt"), 1, None),
)
_MOST = 2**31 - 1


class Parameters:
    """The parameters of a request, or of one record of a batch."""

    def __init__(self, request: WebRequest) -> None:
        self._request = request

    def of(self, record: Mapping[str, Any]) -> "Parameters":
        """Return the parameters of a record; missing ones are those of the request."""
        texts = {name: _text(value) for name, value in record.items()}
        return Parameters(replace(self._request, parameters={**self._request.parameters, **texts}))

    def text(self, *found: str) -> str:
        """Return a parameter by the first present name; "" if none is present."""
        return self._request.get(*found)

    def number(
        self, *found: str, default: int | None = None, least: int = 0, most: int = _MOST
    ) -> int:
        """Return a number. Raises RequestRefused, also if it is missing without a default."""
        value = self._request.number(*found, default=default)
        if value != default and not least <= value <= most:
            raise RequestRefused(
                f"Parameter {found[0]} value must be between {least} and {most}, it is {value}"
            )
        return value

    def flag(self, *found: str, default: bool | None = None) -> bool | None:
        """Return a flag; None if it is missing and has no default."""
        if not self.text(*found):
            return default
        return self._request.flag(*found)

    def topics(self, *, needed: bool) -> list[str]:
        """Return topicName: names, separated by commas."""
        return [self._topic(name) for name in self._items(needed, "topicName", "topic")]

    def groups(self, *, needed: bool) -> list[str]:
        """Return groupName, or consumeGroup."""
        found = self._items(needed, "groupName", "group", "consumeGroup")
        return [self._legal(names.check_group, name) for name in found]

    def broker_ids(self, *, needed: bool) -> list[int]:
        """Return brokerId: numbers, separated by commas."""
        found = []
        for item in self._items(needed, "brokerId"):
            if not (
                item.isascii() and item.isdigit() and len(item) <= 10 and 0 < int(item) <= _MOST
            ):
                raise RequestRefused(f"Parameter brokerId parse error: {item[:20]}")
            found.append(int(item))
        return found

    def consumer_ids(self) -> list[str]:
        """Return consumerId: ids, separated by commas."""
        found = self._items(True, "consumerId", "csmId")
        return [self._legal(names.check_client_id, name) for name in found]

    def filter_items(self) -> list[str] | None:
        """Return filterConds: items, separated by commas; None if missing."""
        if not self.text("filterConds", "flts"):
            return None
        try:
            return sorted(names.check_filter_items(self._items(True, "filterConds", "flts")))
        except IllegalName as error:
            raise RequestRefused(str(error)) from None

    def ip(self) -> str:
        """Return brokerIp, of one broker."""
        text = self._request.need("brokerIp", "bIp")
        if not _IPV4.fullmatch(text):
            raise RequestRefused(f"Parameter brokerIp: {text[:40]} is no IPv4 address")
        return text

    def props(self, base: Props) -> Props:
        """Return `base` with the requested changes."""
        changes: dict[str, Any] = {}
        for attribute, found, least, most in _PROPS:
            if self.text(*found):
                changes[attribute] = self.number(*found, least=least, most=most or _MOST)
        for attribute, found in (
            ("accept_publish", ("acceptPublish", "accPub")),
            ("accept_subscribe", ("acceptSubscribe", "accSub")),
        ):
            value = self.flag(*found)
            if value is not None:
                changes[attribute] = value
        policy = self.text("deletePolicy", "delPolicy")
        if policy:
            if not _POLICY.fullmatch(policy):
                raise RequestRefused(
                    f"Illegal value {policy[:100]} of deletePolicy: expected delete,168h or so"
                )
            changes["delete_policy"] = policy
        return replace(base, **changes)

    def qry_priority(self) -> int:
        """Return qryPriorityId: 1, 2 or 3 in its hundreds and units; UNDEFINED if missing."""
        value = self.number("qryPriorityId", "qryPriId", default=UNDEFINED, least=101, most=303)
        if value != UNDEFINED and (
            value % 100 not in _PRIORITIES or value // 100 not in _PRIORITIES
        ):
            raise RequestRefused(
                f"Illegal value in qryPriorityId parameter: {value}; its hundreds and its units "
                f"must be in {list(_PRIORITIES)}"
            )
        return value

    def flow_rules(self) -> tuple[int, str] | None:
        """Return flowCtrlInfo: the number of records and the text; None if missing."""
        text = self.text("flowCtrlInfo", "flowCtrlSet")
        if not text:
            return None
        try:
            FlowControl.parse(text)
        except MalformedText as error:
            raise RequestRefused(str(error)) from None
        return len(orjson.loads(text)), text

    def records(self, *found: str) -> "list[Parameters]":
        """Return a batch: a JSON array of objects. Raises RequestRefused."""
        text = self._request.need(*found)
        try:
            records = orjson.loads(text)
        except ValueError as error:
            raise RequestRefused(f"Parameter {found[0]} parse error: {error}") from None
        if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
            raise RequestRefused(f"Parameter {found[0]}: expected a list of objects")
        if not 0 < len(records) <= MOST_ITEMS:
            raise RequestRefused(f"Parameter {found[0]}: expected 1 to {MOST_ITEMS} records")
        return [self.of(record) for record in records]

    def audit(self, *, adds: bool, serial: int) -> Audit:
        """Return the user and time of the change: createUser to add, modifyUser to change."""
        now = datetime.fromtimestamp(clock.time()).strftime("%Y%m%d%H%M%S")
        creator = self._user("createUser", "cur", needed=adds)
        modifier = self._user("modifyUser", "mur", needed=not adds) or creator
        created = self._date(now, "createDate", "cDate")
        version = self.number("dataVersionId", "dataVerId", default=UNDEFINED, most=2**63 - 1)
        changed = self._date(created if adds else now, "modifyDate", "mDate")
        return Audit(version, serial, creator, created, modifier, changed)

    def _user(self, *found: str, needed: bool) -> str:
        text = self._request.need(*found) if needed else self.text(*found)
        if text and not _USER.fullmatch(text):
            raise RequestRefused(
                f"Parameter {found[0]}: {text[:64]} must begin with a letter, can only contain "
                "characters,numbers,and underscores"
            )
        return text

    def _date(self, default: str, *found: str) -> str:
        text = self.text(*found)
        if text and not _DATE.fullmatch(text):
            raise RequestRefused(f"Parameter {found[0]}: expected yyyyMMddHHmmss")
        return text or default

    def _items(self, needed: bool, *found: str) -> list[str]:
        items = self._request.items(*found)
        if needed and not items:
            self._request.need(*found)
            raise RequestRefused(f"Parameter {found[0]} names nothing")
        if len(items) > MOST_ITEMS:
            raise RequestRefused(f"Parameter {found[0]} has more than {MOST_ITEMS} items")
        return items

    def _topic(self, name: str) -> str:
        return name if name == SYSTEM_TOPIC else self._legal(names.check_topic, name)

    def _legal(self, check: Any, text: str) -> str:
        try:
            return str(check(text))
        except IllegalName as error:
            raise RequestRefused(str(error)) from None


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        return orjson.dumps(value).decode()
    return "" if value is None else str(value)
