"""Errors of Spark queries on topics, beside what mq.client raises.

PipelineError
├── OptionError        an option is missing, unknown or malformed; names it and shows a right one
│   ├── ClusterAway    no name server answers at the address that it gives
│   ├── Unknown        there is no topic or group of the name that it gives
│   └── KeyRefused     a broker refuses the access key that it gives
├── OldSpark           what a query wants is in later releases of Spark only
├── SchemaError        a column that is not there, or of a type that it cannot have
├── BrokerDown         a broker does not answer while a query is planned
├── BrokerAway         a broker stays away whose messages a stream has to read
├── PartitionOccupied  another client of the group has a partition of TubeMQ, and keeps it
├── DataLoss           messages that were to be read are gone, and failOnDataLoss is true
├── Damaged            failOnDamage is true
│   ├── DamagedStore   and files of a store are not as they should be
│   └── DamagedBody    and a body cannot be decompressed
├── RowError           a row that no message can be made of
├── WriteFailed        rows could not be sent, however often it was tried
└── CommitFailed       messages that were prepared could not all be made visible
"""

import json

from mq.client.errors import MQError


class PipelineError(MQError):
    """Anything that the data source raises by itself."""


class OptionError(PipelineError):
    """The option called `name` cannot be used."""

    def __init__(self, name: str, reason: str, example: str, instead: str = "") -> None:
        """`example` is a right value: of the option, or of the one to be used `instead`."""
        shown = f'.option("{instead or name}", {json.dumps(example)})'
        super().__init__(f"option {name}: {reason}; for example {shown}")
        self.name = name
        self.reason = reason
        self.example = example


class ClusterAway(OptionError):
    """No name server answers: the option may be wrong, or they are down."""


class Unknown(OptionError):
    """There is no topic or group of the name that the option gives, or its brokers are down."""


class KeyRefused(OptionError):
    """A broker refuses the access key of the option, or what it may not do."""


class OldSpark(PipelineError):
    """This release of Spark has not what a query wants."""

    def __init__(self, what: str, why: str) -> None:
        from pyspark import __version__

        super().__init__(f"{what} needs Spark 4.2 or later, and this is {__version__}: {why}")


class SchemaError(PipelineError):
    """The schema asks for what a message does not have."""


class DataLoss(PipelineError):
    """Messages are gone that the query was to read."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. To go on without them, and only report them in the log: "
            '.option("failOnDataLoss", "false")'
        )
        self.what = what


class Damaged(PipelineError):
    """Something is not as it should be, and a query may go on without it, or with it as it is."""

    way_on = ""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {self.way_on}")
        self.what = what

    def __reduce__(self) -> tuple[type["Damaged"], tuple[str]]:
        return type(self), (self.what,)


class DamagedStore(Damaged):
    """A part of a commit log that should be messages is something else."""

    way_on = (
        "To leave it out, and only report it in the log: "
        '.option("failOnDamage", "false"); to list all damage: .option("report", "damage")'
    )


class DamagedBody(Damaged):
    """A body that its producer compressed cannot be decompressed."""

    way_on = (
        "To take such bodies as they are stored, and only report them in the log: "
        '.option("failOnDamage", "false"); the column bodyError says which they are'
    )


class BrokerAway(PipelineError):
    """A broker stays away in the middle of a micro-batch.

    Its messages are not lost, and a stream that went on would never come back to them: this fails
    whatever failOnDataLoss is.
    """

    retriable = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Nothing is lost: start the broker, and the query again, which goes on there"
        )


class BrokerDown(PipelineError):
    """A broker did not answer, however often it was asked."""

    retriable = True

    def __init__(self, broker_name: str, topic: str, reason: str) -> None:
        super().__init__(
            f"broker {broker_name} of topic {topic} does not answer: {reason}. Start it, or leave "
            'its queues out: .option("failOnDataLoss", "false")'
        )
        self.broker_name = broker_name
        self.topic = topic


class PartitionOccupied(PipelineError):
    """A broker of TubeMQ lets one client of a group read a partition, and another one does."""

    retriable = True

    def __init__(self, key: str, group: str, seconds: float, reason: str) -> None:
        super().__init__(
            f"partition {key}: another client of group {group} has had it for {seconds:g} s: "
            f"{reason}. A query needs a group of its own, which no consumer uses and no other "
            'query that runs at the same time: .option("group", ...). What a task held that was '
            'killed is free after half a minute; to wait longer: .option("occupiedTimeoutMs", ...)'
        )
        self.key = key
        self.group = group
        self.seconds = seconds
        self.reason = reason

    def __reduce__(self) -> tuple[type["PartitionOccupied"], tuple[str, str, float, str]]:
        return PartitionOccupied, (self.key, self.group, self.seconds, self.reason)


class RowError(PipelineError):
    """A row that no message can be made of."""


class WriteFailed(PipelineError):
    """Rows could not be sent, however often it was tried."""


class CommitFailed(PipelineError):
    """Messages that were prepared could not all be made visible."""
