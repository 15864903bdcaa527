"""Micro-batches: topics as a stream, which offsets each micro-batch goes from and to.

The offsets of a query are its checkpoint. Spark writes where a batch ends before it runs it, and
takes its beginning from the batch before; of the first batch it asks `initialOffset` again when the
query is restarted in the middle of it. An answer that has changed meanwhile, as "latest" does,
would lose what the first batch had. So the first batch of such a query is empty: it ends where it
begins, and with that the beginning is written down.
"""

import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from mq.pipeline.cluster import Bounds, Cluster
from mq.pipeline.decoder import Decoder
from mq.pipeline.errors import BrokerAway, DataLoss
from mq.pipeline.offsets import EARLIEST, LATEST, Nested, Offsets, Queue, from_nested, to_nested
from mq.pipeline.options import ReadOptions
from mq.pipeline.planning import limited, ranges, report_loss, split, starting_offsets
from mq.pipeline.puller import QueueRange
from mq.pipeline.reading import Partition, read


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics without end. Queues that appear later are read from their beginning."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages have not."""
        Decoder(schema)
        self._options = options
        self._schema = schema
        self._to_pin: Nested | None = None
        self._target: Offsets | None = None  # where a query with availableNow ends
        self._latest: Offsets = {}
        self._committed: Offsets = {}
        self._last_batch = time.monotonic()
        self._logged: set[str] = set()  # topics that are absent, which was logged

    def initialOffset(self) -> Nested:
        """Where a new query begins; "latest" unless the options say otherwise."""
        with Cluster(self._options) as cluster:
            bounds = cluster.bounds(cluster.topics())
            offsets = starting_offsets(self._options, cluster, bounds, LATEST)
            cluster.try_pulls(QueueRange(*queue, at, at) for queue, at in offsets.items())
        start = to_nested(offsets)
        if self._options.starting_timestamp is None and self._options.starting_offsets != EARLIEST:
            self._to_pin = start
        return start

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {queue: at.end for queue, at in self._bounds().items()}

    def latestOffset(self, start: Nested, limit: ReadLimit) -> Nested:
        """Where the next batch ends; `start` itself if it has to wait."""
        pinned, self._to_pin = self._to_pin, None
        if pinned == start and pinned:
            return start
        began = from_nested(start)
        end, begin = self._ahead(began)
        if not isinstance(limit, ReadAllAvailable) and self._is_early(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        self._last_batch = time.monotonic()
        # What is not known now, such as queues of a broker that is away, stays as it is.
        new = {queue: offset for queue, offset in end.items() if offset != begin[queue]}
        return to_nested({**began, **new})

    def reportLatestOffset(self) -> Nested | None:
        return to_nested(self._latest) if self._latest else None

    def partitions(self, start: Nested, end: Nested) -> list[InputPartition]:
        again, self._to_pin = self._to_pin, None
        if again == start and again:
            return []  # the first batch after a restart: it was empty, and is to be so again
        began, ended = from_nested(start), from_nested(end)
        moved_back = [queue for queue in ended if began.get(queue, 0) > ended[queue]]
        for queue in moved_back:
            report_loss(self._options, queue, began.pop(queue), ended[queue])
        unknown = ended.keys() - began.keys()
        if unknown:
            bounds = self._bounds()
            away = sorted(unknown - bounds.keys())
            if away:  # they were there when the batch was planned
                raise BrokerAway(f"{away[0]} cannot be asked")
            began.update({queue: bounds[queue].begin for queue in unknown})
        parts = split(ranges(began, ended), self._options.min_partitions)
        return [Partition((each,), skip_absent=False) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read(self._options, self._schema, partition)

    def commit(self, end: Nested) -> None:
        """Mirror the offsets to the consumer group, if that is wanted."""
        if not self._options.commit_offsets:
            return
        done = from_nested(end)
        changed = {queue: at for queue, at in done.items() if self._committed.get(queue) != at}
        with Cluster(self._options) as cluster:
            cluster.commit(self._options.group, changed)
        self._committed = done

    def _bounds(self) -> dict[Queue, Bounds]:
        with Cluster(self._options, answered=True, logged=self._logged) as cluster:
            bounds = cluster.bounds(cluster.topics())
        self._latest = {queue: at.end for queue, at in bounds.items()}
        return bounds

    def _ahead(self, began: Mapping[Queue, int]) -> tuple[Offsets, Offsets]:
        """Where each queue ends now (or where availableNow is to end), and where it goes on."""
        bounds = self._bounds_of_all(began)
        ends = {queue: at.end for queue, at in bounds.items()}
        if self._target is not None:
            for queue in ends.keys() & began.keys():  # its broker was away when the query began
                self._target.setdefault(queue, ends[queue])
            # A batch that was planned before a restart may have gone further than the target.
            ends = {
                queue: min(ends[queue], max(at, began.get(queue, at)))
                for queue, at in self._target.items()
                if queue in ends
            }
        begins = {queue: began.get(queue, bounds[queue].begin) for queue in ends}
        return ends, begins

    def _bounds_of_all(self, began: Mapping[Queue, int]) -> dict[Queue, Bounds]:
        """The queues that there are now. Where some are missing that a batch has read already,
        because their broker is down, name servers are asked again; in the end their offsets stay
        where they are, or the query fails."""
        pause = self._options.retry_pause_ms / 1000
        for tries_left in range(self._options.retries, -1, -1):
            bounds = self._bounds()
            gone = sorted(began.keys() - bounds.keys())
            if not gone or not self._options.fail_on_data_loss:
                break
            if not tries_left:
                raise DataLoss(
                    f"{gone[0]} is not there any more: its broker is down, or it was deleted"
                )
            time.sleep(pause)
            pause *= 2
        return bounds

    def _is_early(self, begin: Mapping[Queue, int], end: Mapping[Queue, int]) -> bool:
        """Whether minOffsetsPerTrigger lets the batch wait for more messages."""
        least = self._options.min_offsets
        if least is None or self._target is not None:
            return False
        ready = sum(end[queue] - begin[queue] for queue in end)
        waited = time.monotonic() - self._last_batch
        return 0 <= ready < least and waited < self._options.max_delay
