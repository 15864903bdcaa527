"""Checks of open transactions: asks their producers how they ended.

One round each `transactionCheckInterval` goes over the open halves, oldest first
(TransactionalMessageServiceImpl.check). A half that is old enough is put again at the end of the
half topic with its number of checks, so that the start of the topic becomes free, and its producer
is asked with CHECK_TRANSACTION_STATE. After `transactionCheckMax` checks it goes to
TRANS_CHECK_MAX_TIME_TOPIC. Unlike in Java, a half keeps the flag of its user when it is put again,
and a round does not count as a check while CHECK_IMMUNITY_TIME_IN_SECONDS protects the half.
"""

import asyncio
import contextlib
import logging
from collections import deque
from enum import Enum, auto

from mq.client.machine import clock
from mq.daemons.broker.clients.registry import Producers
from mq.daemons.broker.clock_steps import is_future
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.quarantine import Quarantine
from mq.daemons.broker.delivery.waiting import StoreResults, is_hopeless, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter, NoTarget
from mq.daemons.broker.roles import is_slave
from mq.daemons.broker.store import OnStored, StoreRefused
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.broker.transactions.records import HALF_QUEUE, number_property
from mq.daemons.broker.transactions.service import Transactions
from mq.protocol import names
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from mq.protocol.message import StoredMessage, encode_record
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

_AT_ONCE = 64  # halves put again in one turn of the event loop, and their bytes
_BYTES_AT_ONCE = 4 * 1024 * 1024
_MOST_SECONDS = 60.0  # of a round (MAX_PROCESS_TIME_LIMIT)
_DISCARD_QUEUES = 1


class _CheckDecision(Enum):
    """The action of a round for an open half."""

    TOO_YOUNG = auto()  # later ones are too young, too
    IMMUNE = auto()
    CHECK = auto()
    GIVE_UP = auto()


class TransactionChecks:
    """Checks open transactions in rounds."""

    def __init__(
        self,
        settings: BrokerSettings,
        transactions: Transactions,
        writer: MessageWriter,
        topics: Topics,
        producers: Producers,
        aside: Quarantine,
    ) -> None:
        self._settings = settings
        self._transactions = transactions
        self._ledger = transactions.ledger
        self._writer = writer
        self._topics = topics
        self._producers = producers
        self._aside = aside
        self._changed = asyncio.Event()
        self.checked = 0
        self.given_up = 0

    def configure(self) -> None:
        """A setting has changed: the next round may be due earlier."""
        self._changed.set()

    async def run(self) -> None:
        """Check until cancelled. An error ends only its round."""
        clock = asyncio.get_running_loop().time
        last = clock()
        while True:
            self._changed.clear()
            left = last + self._settings.broker.transaction_check_interval / 1000 - clock()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._changed.wait()
                continue
            last = clock()
            if not is_slave(self._settings):
                try:
                    await self.round()
                except OSError as error:
                    log.error("cannot check transactions: %s; retrying", error)

    async def round(self) -> None:
        """Go once over the halves that are open now. Raises OSError if a topic cannot be
        created."""
        clock = asyncio.get_running_loop().time
        latest = clock() + _MOST_SECONDS
        started = _now()
        offsets = deque(self._transactions.open_halves())
        while offsets and clock() < latest:
            results = StoreResults()
            continues = self._check(offsets, started, results)
            await results.wait()
            if not continues or not results.all_well:
                break
        self._transactions.save_progress()

    def _check(self, offsets: deque[int], started: int, results: StoreResults) -> bool:
        """Handle some halves; returns whether the round continues after them."""
        size = 0
        for _ in range(min(_AT_ONCE, len(offsets))):
            if size > _BYTES_AT_ONCE:
                break
            offset = offsets.popleft()
            if not self._ledger.is_open(offset):
                continue  # it has ended meanwhile
            try:
                half = self._transactions.read_half(offset)
                if half is None:
                    raise LookupError("the half of an open transaction is not in the log")
                size += half.store_size
                if not self._handle(half, started, results):
                    return False
            except StoreRefused as refusal:
                if not is_hopeless(refusal):
                    log.warning(
                        "the check of transactions is delayed: %s",
                        refusal,
                        extra={"failure": "transaction checks"},
                    )
                    return False
                self._quarantine(offset, refusal)
            except OSError as error:  # of the disk: the next round retries
                log.error("cannot check transaction %d: %s; retrying", offset, error)
            except Exception as error:
                self._quarantine(offset, error)
        return True

    def _handle(self, half: StoredMessage, started: int, results: StoreResults) -> bool:
        """Handle a half; returns whether the round continues after it.

        Raises StoreRefused.
        """
        decision = self._judge(half, started)
        if decision is _CheckDecision.TOO_YOUNG:
            return False
        if decision is not _CheckDecision.GIVE_UP:
            try:
                self._put_again(half, decision, results)
                return True
            except StoreRefused as refusal:
                if not is_hopeless(refusal):
                    raise
                # Usually its properties have no room for the number of checks, in a store from
                # before that room was reserved. It is given up unchanged.
                log.error("cannot put %r again: %s", half, refusal)
            reread = self._transactions.read_half(half.queue_offset)
            if reread is None:
                raise LookupError("the half of an open transaction is not in the log")
            half = reread
        self._give_up(half, results)
        return True

    def _quarantine(self, offset: int, error: BaseException) -> None:
        """End a half that cannot be handled: it must neither block the others nor be checked
        again."""
        topic = names.TRANSACTION_HALF_TOPIC
        self._aside.put("transaction checks", error, topic, HALF_QUEUE, offset)
        try:
            self._transactions.roll_back(offset)
        except StoreRefused as refusal:
            log.warning("transaction %d is still open: %s", offset, refusal)

    def _judge(self, half: StoredMessage, started: int) -> _CheckDecision:
        now = _now()
        age = now - half.born_timestamp  # below 0 if the producer's clock is ahead
        checks = number_property(half, PropertyKey.TRANSACTION_CHECK_TIMES) or 0
        kept = self._settings.store.file_reserved_time * 3600 * 1000
        if checks >= self._settings.broker.transaction_check_max or age > kept:
            return _CheckDecision.GIVE_UP
        stored = half.store_timestamp
        if stored >= started and not is_future(stored, now):
            return _CheckDecision.TOO_YOUNG
        immunity = self._settings.broker.transaction_time_out
        seconds = number_property(half, PropertyKey.CHECK_IMMUNITY_TIME)
        if seconds is not None:
            immunity = seconds * 1000 if seconds >= 0 else immunity
            if age < immunity:
                return _CheckDecision.IMMUNE
        return _CheckDecision.TOO_YOUNG if 0 <= age <= immunity else _CheckDecision.CHECK

    def _put_again(
        self, half: StoredMessage, decision: _CheckDecision, results: StoreResults
    ) -> None:
        """Put a half at the end of the half topic, then ask its producer unless the half is immune.

        Raises StoreRefused.
        """
        old = half.queue_offset
        properties = half.properties
        if decision is _CheckDecision.IMMUNE:
            properties.setdefault(PropertyKey.TRANSACTION_PREPARED_QUEUE_OFFSET, str(old))
        else:
            checks = number_property(half, PropertyKey.TRANSACTION_CHECK_TIMES) or 0
            properties[PropertyKey.TRANSACTION_CHECK_TIMES] = str(max(checks, 0) + 1)

        def put(outcome: OnStored) -> None:
            def stored(refusal: StoreRefused | None) -> None:
                new = half.queue_offset
                if not is_stored(refusal):
                    self._ledger.replace(new, old)
                elif decision is _CheckDecision.CHECK and self._ledger.is_open(new):
                    self._ask(half)
                outcome(refusal)

            self._writer.put(half, stored)

        results.put(put)
        # At once, because an end of the half by its old offset may arrive before it is stored.
        self._ledger.replace(old, half.queue_offset)

    def _ask(self, half: StoredMessage) -> None:
        """Send a half, in the form that its consumers would get, to one of its producers."""
        group = half.properties.get(PropertyKey.PRODUCER_GROUP, "")
        topic = half.properties.get(PropertyKey.REAL_TOPIC, "")
        channel = self._producers.any_channel(group, topic)
        if channel is None:
            log.warning(
                "producer group %s has open transactions, but no member here for the check",
                group,
                extra={"failure": f"checks of {group}"},
            )
            return
        unique = half.properties.get(PropertyKey.UNIQUE_KEY)
        offset = half.queue_offset
        try:
            self._writer.restore_target(half)
        except NoTarget as error:
            log.error("cannot check %r: %s", half, error,
                      extra={"failure": "transaction checks"})  # fmt: skip
            return
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=encode_offset_id(*self._transactions.host, half.physical_offset),
            topic=half.topic,
        )
        self.checked += 1
        channel.notify(
            Command(RequestCode.CHECK_TRANSACTION_STATE, header.encode(), encode_record(half))
        )

    def _give_up(self, half: StoredMessage, results: StoreResults) -> None:
        """Put a half into the topic for operators (DefaultTransactionalMessageCheckListener)."""
        offset = half.queue_offset
        topic = self._topics.create_internal(
            names.TRANSACTION_CHECK_MAX_TIME_TOPIC, _DISCARD_QUEUES
        )
        log.error("giving up transaction %r: it was checked too often or is too old", half)
        half.topic = topic.topic_name
        half.queue_id = 0

        def put(outcome: OnStored) -> None:
            def stored(refusal: StoreRefused | None) -> None:
                if is_stored(refusal):
                    self._ledger.give_up(offset)
                    self.given_up += 1
                outcome(refusal)

            self._writer.put(half, stored)

        results.put(put)


def _now() -> int:
    return clock.milliseconds()
