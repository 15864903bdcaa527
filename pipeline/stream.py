"""Micro-batches: topics as a stream, and the offsets of each micro-batch.

The offsets of a query are its checkpoint. Spark stores the end of a batch before it runs it, and
takes its start from the previous batch. If the query is restarted in the middle of the first batch,
Spark calls `initialOffset` again for its start. An answer that has changed meanwhile, as "latest"
does, would lose the messages of the first batch. So the first batch of such a query is empty: its
end is its start, which is stored with it.
"""

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
from mq.pipeline.data_loss import report_recreated
from mq.pipeline.declared import PlanOptions
from mq.pipeline.decoder import Decoder
from mq.pipeline.errors import BrokerAway, DataLoss
from mq.pipeline.offsets import EARLIEST, LATEST, Offsets, Queue, to_nested
from mq.pipeline.options import ReadOptions
from mq.pipeline.planning import limited, ranges, report_loss, split, starting_offsets
from mq.pipeline.puller import QueueRange
from mq.pipeline.reading import Partition, read
from mq.pipeline.topic_generations import (
    GenerationCheck,
    Place,
    TopicGeneration,
    TopicGenerations,
    from_checkpoint,
    generations_from_json,
    generations_to_json,
    recreated,
)

Json = dict[str, Any]  # offsets as in a checkpoint


class MicroBatches(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Queues that appear later are read from their beginning.

    Subclasses implement the access to a messaging system.
    """

    step = 1  # difference between the offsets of consecutive messages

    def __init__(self, options: PlanOptions) -> None:
        self._plan = options
        self._to_pin: Json | None = None
        self._target: Offsets | None = None  # the ends for a query with availableNow
        self._latest: Offsets = {}
        self._generations: TopicGenerations = {}  # of the last batch
        self._last_batch = time.monotonic()

    @abstractmethod
    def _begin(self) -> Offsets:
        """Return the start of a new query; "latest" unless the options say otherwise."""

    @abstractmethod
    def _ask_bounds(self) -> dict[Queue, Bounds]:
        """Return the current queues."""

    @abstractmethod
    def _tasks(self, whole: Sequence[QueueRange]) -> list[InputPartition]:
        """Return the tasks that read these ranges."""

    @abstractmethod
    def _to_json(
        self, offsets: Mapping[Queue, int], generations: Mapping[Place, TopicGeneration]
    ) -> Json: ...

    @abstractmethod
    def _from_json(self, json: Json) -> Offsets: ...

    def _generations_at(self, began: Offsets) -> TopicGenerations:
        """Return the generations of the topics of a new query with this start."""
        return {}

    def _renewed(
        self, generations: TopicGenerations, bounds: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGenerations:
        """Return the generations after a batch that continues from `began`."""
        return generations

    def _is_pinned(self) -> bool:
        """Whether the start of a new query may change between two calls."""
        return self._plan.starting_offsets != EARLIEST

    def initialOffset(self) -> Json:
        """Return the start of a new query."""
        begin = self._begin()
        start = self._to_json(begin, self._generations_at(begin))
        if self._is_pinned():
            self._to_pin = start
        return start

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._plan.max_offsets is not None:
            return ReadMaxRows(self._plan.max_offsets)
        if self._plan.min_offsets is not None:
            return ReadMinRows(self._plan.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {queue: at.end for queue, at in self._bounds().items()}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Return the end of the next batch; `start` itself if it has to wait."""
        pinned, self._to_pin = self._to_pin, None
        if pinned == start and pinned:
            return start
        began, before = self._from_json(start), generations_from_json(start)
        bounds = self._bounds_of_all(began)
        generations = self._renewed(before, bounds, began)
        renewed = recreated(before, generations)
        began = {queue: at for queue, at in began.items() if queue[:2] not in renewed}
        end, begin = self._ahead(began, bounds)
        moved_back = {queue for queue in end if began.get(queue, 0) > end[queue]}
        is_limited = not isinstance(limit, ReadAllAvailable)
        if is_limited and not (moved_back or renewed) and self._is_early(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows, self.step)
        self._last_batch = time.monotonic()
        # Offsets that are unknown now, such as those of an unavailable broker, do not change.
        new = {
            queue: offset
            for queue, offset in end.items()
            if offset != begin[queue] or queue in moved_back
        }
        if not (new or renewed):
            return start
        self._generations = generations
        return self._to_json({**began, **new}, generations)

    def reportLatestOffset(self) -> Json | None:
        return self._to_json(self._latest, self._generations) if self._latest else None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        again, self._to_pin = self._to_pin, None
        if again == start and again:
            return []  # the first batch after a restart: it was empty, and must be so again
        began, ended = self._from_json(start), self._from_json(end)
        for place in sorted(recreated(generations_from_json(start), generations_from_json(end))):
            report_recreated(*place, fail=self._plan.fail_on_data_loss)
            began = {queue: at for queue, at in began.items() if queue[:2] != place}
        moved_back = [queue for queue in ended if began.get(queue, 0) > ended[queue]]
        for queue in moved_back:
            report_loss(self._plan, queue, began.pop(queue), ended[queue])
        unknown = ended.keys() - began.keys()
        if unknown:
            bounds = self._bounds()
            away = sorted(unknown - bounds.keys())
            if away:  # they were there when the batch was planned
                raise BrokerAway(f"{away[0]} is unavailable")
            began.update({queue: bounds[queue].begin for queue in unknown})
        return self._tasks(ranges(began, ended))

    def _bounds(self) -> dict[Queue, Bounds]:
        bounds = self._ask_bounds()
        self._latest = {queue: at.end for queue, at in bounds.items()}
        return bounds

    def _ahead(
        self, began: Mapping[Queue, int], bounds: Mapping[Queue, Bounds]
    ) -> tuple[Offsets, Offsets]:
        """Return the current end of each queue (or its target for availableNow), and where reading
        continues. This is the beginning of the queue if it ends before our offset, because it
        was recreated. A replica may lack the last messages of an unavailable master: there the
        offset does not change.
        """
        bounds = {
            queue: at
            for queue, at in bounds.items()
            if not at.of_replica or at.end >= began.get(queue, 0)
        }
        ends = {queue: at.end for queue, at in bounds.items()}
        if self._target is not None:
            # their broker was unavailable when the query began
            for queue in ends.keys() & began.keys():
                self._target.setdefault(queue, ends[queue])
            # A batch that was planned before a restart may extend past the target.
            ends = {
                queue: min(ends[queue], max(at, began.get(queue, at)))
                for queue, at in self._target.items()
                if queue in ends
            }
        begins = {queue: bounds[queue].begin for queue in ends}
        begins.update({queue: at for queue, at in began.items() if at <= ends.get(queue, -1)})
        return ends, begins

    def _bounds_of_all(self, began: Mapping[Queue, int]) -> dict[Queue, Bounds]:
        """Return the current queues. If queues that were read before are missing, because their
        broker is down, the name servers are queried again; finally their offsets do not change,
        or the query fails.
        """
        pause = self._plan.retry_pause_ms / 1000
        for tries_left in range(self._plan.retries, -1, -1):
            bounds = self._bounds()
            gone = sorted(began.keys() - bounds.keys())
            if not gone or not self._plan.fail_on_data_loss:
                break
            if not tries_left:
                raise DataLoss(f"{gone[0]} has disappeared: its broker is down, or it was deleted")
            time.sleep(pause)
            pause *= 2
        return bounds

    def _is_early(self, begin: Mapping[Queue, int], end: Mapping[Queue, int]) -> bool:
        """Whether minOffsetsPerTrigger lets the batch wait for more messages."""
        least = self._plan.min_offsets
        if least is None or self._target is not None:
            return False
        ready = sum(end[queue] - begin[queue] for queue in end) // self.step
        waited = time.monotonic() - self._last_batch
        return ready < least and waited < self._plan.max_delay


class StreamReader(MicroBatches):
    """Reads topics of RocketMQ without end."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages do not have."""
        super().__init__(options)
        Decoder(schema)
        self._options = options
        self._schema = schema
        self._committed: Offsets = {}
        self._logged: set[str] = set()  # absent topics that were logged

    def _begin(self) -> Offsets:
        with Cluster(self._options) as cluster:
            bounds = cluster.bounds(cluster.topics())
            offsets = starting_offsets(self._options, cluster, bounds, LATEST)
            cluster.try_pulls(QueueRange(*queue, at, at) for queue, at in offsets.items())
        return offsets

    def _is_pinned(self) -> bool:
        return self._options.starting_timestamp is None and super()._is_pinned()

    def _ask_bounds(self) -> dict[Queue, Bounds]:
        with Cluster(self._options, answered=True, logged=self._logged) as cluster:
            return cluster.bounds(cluster.topics())

    def _generations_at(self, began: Offsets) -> TopicGenerations:
        with Cluster(self._options, answered=True, logged=self._logged) as cluster:
            topics = {queue.topic for queue in began}
            return GenerationCheck(cluster.bounds(topics), cluster.first_readable).first(began)

    def _renewed(
        self, generations: TopicGenerations, bounds: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGenerations:
        with Cluster(self._options, answered=True, logged=self._logged) as cluster:
            return GenerationCheck(bounds, cluster.first_readable).renewed(generations, began)

    def _tasks(self, whole: Sequence[QueueRange]) -> list[InputPartition]:
        parts = split(whole, self._options.min_partitions)
        return [Partition((each,), skip_absent=False) for each in parts]

    def _to_json(
        self, offsets: Mapping[Queue, int], generations: Mapping[Place, TopicGeneration]
    ) -> Json:
        return {**to_nested(offsets), **generations_to_json(generations)}

    def _from_json(self, json: Json) -> Offsets:
        return from_checkpoint(json)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read(self._options, self._schema, partition)

    def commit(self, end: Json) -> None:
        """Mirror the offsets to the consumer group, if the options say so."""
        if not self._options.commit_offsets:
            return
        done = self._from_json(end)
        changed = {queue: at for queue, at in done.items() if self._committed.get(queue) != at}
        with Cluster(self._options) as cluster:
            cluster.commit(self._options.group, changed)
        self._committed = done
