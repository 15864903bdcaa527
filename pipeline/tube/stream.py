"""Topics of TubeMQ as a stream. Its offsets are in the checkpoint, not those of its group."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from mq.pipeline.cluster import Bounds
from mq.pipeline.offsets import LATEST, Offsets, Queue
from mq.pipeline.planning import chosen_start
from mq.pipeline.puller import QueueRange
from mq.pipeline.stream import Json, MicroBatches
from mq.pipeline.tables import Table
from mq.pipeline.topic_generations import Place, TopicGeneration
from mq.pipeline.tube.cluster import TubeCluster
from mq.pipeline.tube.columns import COLUMNS
from mq.pipeline.tube.offsets import INDEX_RECORD, from_keys, to_keys
from mq.pipeline.tube.options import TubeReadOptions
from mq.pipeline.tube.reading import TubeTask, read


class TubeStreamReader(MicroBatches):
    """Reads topics of TubeMQ without end."""

    step = INDEX_RECORD

    def __init__(self, options: TubeReadOptions, schema: StructType) -> None:
        """Raises SchemaError for columns that messages do not have."""
        super().__init__(options)
        Table(schema, COLUMNS)
        self._options = options
        self._schema = schema
        self._cluster: TubeCluster | None = None  # readers are also sent to tasks, which have none

    def _asked(self) -> TubeCluster:
        if self._cluster is None:
            self._cluster = TubeCluster(self._options)
        return self._cluster

    def _begin(self) -> Offsets:
        cluster = self._asked()
        offsets = chosen_start(self._options, cluster.bounds(), LATEST)
        cluster.place(offsets)
        return offsets

    def _ask_bounds(self) -> dict[Queue, Bounds]:
        return self._asked().bounds()

    def _tasks(self, whole: Sequence[QueueRange]) -> list[InputPartition]:
        return [TubeTask(each, skip_absent=False) for each in whole]

    def _to_json(
        self, offsets: Mapping[Queue, int], generations: Mapping[Place, TopicGeneration]
    ) -> Json:
        return dict(to_keys(offsets))

    def _from_json(self, json: Json) -> Offsets:
        return from_keys(json)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, TubeTask)
        return read(self._options, self._schema, partition)

    def stop(self) -> None:
        """Leave the group."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_cluster": None}
