"""Micro-batches: topics as a stream, which offsets each micro-batch goes from and to.

The offsets of a query are its checkpoint. Spark writes where a batch ends before it runs it, and
takes its beginning from the batch before; of the first batch it asks `initialOffset` again when the
query is restarted in the middle of it. An answer that has changed meanwhile, as "latest" does,
would lose what the first batch had. So the first batch of such a query is empty: it ends where it
begins, and with that the beginning is written down.
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
    lives_from_json,
    lives_to_json,
    recreated,
)

Json = dict[str, Any]  # offsets as a checkpoint has them


class MicroBatches(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches. Queues that appear later are read from their beginning.

    Of which system the queues are subclasses know.
    """

    step = 1  # from the offset of a message to that of the next

    def __init__(self, options: PlanOptions) -> None:
        self._plan = options
        self._to_pin: Json | None = None
        self._target: Offsets | None = None  # where a query with availableNow ends
        self._latest: Offsets = {}
        self._lives: TopicGenerations = {}  # of the last batch
        self._last_batch = time.monotonic()

    @abstractmethod
    def _begin(self) -> Offsets:
        """Where a new query begins; "latest" unless the options say otherwise."""

    @abstractmethod
    def _ask_bounds(self) -> dict[Queue, Bounds]:
        """The queues that there are now."""

    @abstractmethod
    def _tasks(self, whole: Sequence[QueueRange]) -> list[InputPartition]:
        """What reads these ranges."""

    @abstractmethod
    def _to_json(
        self, offsets: Mapping[Queue, int], lives: Mapping[Place, TopicGeneration]
    ) -> Json: ...

    @abstractmethod
    def _from_json(self, json: Json) -> Offsets: ...

    def _lives_at(self, began: Offsets) -> TopicGenerations:
        """The lives of the topics of a new query that begins there."""
        return {}

    def _renewed(
        self, lives: TopicGenerations, bounds: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGenerations:
        """The lives after a batch that continues from `began`."""
        return lives

    def _is_pinned(self) -> bool:
        """Whether where a new query begins may change until it is asked again."""
        return self._plan.starting_offsets != EARLIEST

    def initialOffset(self) -> Json:
        """Where a new query begins."""
        begin = self._begin()
        start = self._to_json(begin, self._lives_at(begin))
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
        """Where the next batch ends; `start` itself if it has to wait."""
        pinned, self._to_pin = self._to_pin, None
        if pinned == start and pinned:
            return start
        began, before = self._from_json(start), lives_from_json(start)
        bounds = self._bounds_of_all(began)
        lives = self._renewed(before, bounds, began)
        anew = recreated(before, lives)
        began = {queue: at for queue, at in began.items() if queue[:2] not in anew}
        end, begin = self._ahead(began, bounds)
        moved_back = {queue for queue in end if began.get(queue, 0) > end[queue]}
        is_limited = not isinstance(limit, ReadAllAvailable)
        if is_limited and not (moved_back or anew) and self._is_early(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows, self.step)
        self._last_batch = time.monotonic()
        # What is not known now, such as queues of a broker that is away, stays as it is.
        new = {
            queue: offset
            for queue, offset in end.items()
            if offset != begin[queue] or queue in moved_back
        }
        if not (new or anew):
            return start
        self._lives = lives
        return self._to_json({**began, **new}, lives)

    def reportLatestOffset(self) -> Json | None:
        return self._to_json(self._latest, self._lives) if self._latest else None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        again, self._to_pin = self._to_pin, None
        if again == start and again:
            return []  # the first batch after a restart: it was empty, and is to be so again
        began, ended = self._from_json(start), self._from_json(end)
        for place in sorted(recreated(lives_from_json(start), lives_from_json(end))):
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
                raise BrokerAway(f"{away[0]} cannot be asked")
            began.update({queue: bounds[queue].begin for queue in unknown})
        return self._tasks(ranges(began, ended))

    def _bounds(self) -> dict[Queue, Bounds]:
        bounds = self._ask_bounds()
        self._latest = {queue: at.end for queue, at in bounds.items()}
        return bounds

    def _ahead(
        self, began: Mapping[Queue, int], bounds: Mapping[Queue, Bounds]
    ) -> tuple[Offsets, Offsets]:
        """Where each queue ends now (or where availableNow is to end), and where it goes on: at its
        beginning if it ends before where we are, for it is another one. Not so at a replica, which
        may lack the last messages of a master that is away: there a queue stays where it is."""
        bounds = {
            queue: at
            for queue, at in bounds.items()
            if not at.of_replica or at.end >= began.get(queue, 0)
        }
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
        begins = {queue: bounds[queue].begin for queue in ends}
        begins.update({queue: at for queue, at in began.items() if at <= ends.get(queue, -1)})
        return ends, begins

    def _bounds_of_all(self, began: Mapping[Queue, int]) -> dict[Queue, Bounds]:
        """The queues that there are now. Where some are missing that a batch has read already,
        because their broker is down, name servers are asked again; in the end their offsets stay
        where they are, or the query fails."""
        pause = self._plan.retry_pause_ms / 1000
        for tries_left in range(self._plan.retries, -1, -1):
            bounds = self._bounds()
            gone = sorted(began.keys() - bounds.keys())
            if not gone or not self._plan.fail_on_data_loss:
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
        least = self._plan.min_offsets
        if least is None or self._target is not None:
            return False
        ready = sum(end[queue] - begin[queue] for queue in end) // self.step
        waited = time.monotonic() - self._last_batch
        return ready < least and waited < self._plan.max_delay


class StreamReader(MicroBatches):
    """Reads topics of RocketMQ without end."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages have not."""
        super().__init__(options)
        Decoder(schema)
        self._options = options
        self._schema = schema
        self._committed: Offsets = {}
        self._logged: set[str] = set()  # topics that are absent, which was logged

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

    def _lives_at(self, began: Offsets) -> TopicGenerations:
        with Cluster(self._options, answered=True, logged=self._logged) as cluster:
            topics = {queue.topic for queue in began}
            return GenerationCheck(cluster.bounds(topics), cluster.first_readable).first(began)

    def _renewed(
        self, lives: TopicGenerations, bounds: Mapping[Queue, Bounds], began: Offsets
    ) -> TopicGenerations:
        with Cluster(self._options, answered=True, logged=self._logged) as cluster:
            return GenerationCheck(bounds, cluster.first_readable).renewed(lives, began)

    def _tasks(self, whole: Sequence[QueueRange]) -> list[InputPartition]:
        parts = split(whole, self._options.min_partitions)
        return [Partition((each,), skip_absent=False) for each in parts]

    def _to_json(
        self, offsets: Mapping[Queue, int], lives: Mapping[Place, TopicGeneration]
    ) -> Json:
        return {**to_nested(offsets), **lives_to_json(lives)}

    def _from_json(self, json: Json) -> Offsets:
        return from_checkpoint(json)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Partition)
        return read(self._options, self._schema, partition)

    def commit(self, end: Json) -> None:
        """Mirror the offsets to the consumer group, if that is wanted."""
        if not self._options.commit_offsets:
            return
        done = self._from_json(end)
        changed = {queue: at for queue, at in done.items() if self._committed.get(queue) != at}
        with Cluster(self._options) as cluster:
            cluster.commit(self._options.group, changed)
        self._committed = done
