"""Errors of Spark queries on topics, in addition to those of mq.client.

PipelineError
├── OptionError        an option is missing, unknown or invalid; names it and shows a valid one
│   ├── ClusterAway    no name server answers at the address of the option
│   ├── Unknown        there is no topic or group with the name of the option
│   └── KeyRefused     a broker refuses the access key of the option
├── OldSpark           the query needs a later release of Spark
├── SchemaError        a column that does not exist, or of a type that it cannot have
├── BrokerDown         a broker does not answer while a query is planned
├── BrokerAway         a broker whose messages a stream has to read stays unavailable
├── PartitionOccupied  another client of the group holds a partition of TubeMQ
├── DataLoss           messages to read are gone, and failOnDataLoss is true
├── Damaged            failOnDamage is true
│   ├── DamagedStore   and files of a store are damaged
│   └── DamagedBody    and a body cannot be decompressed
├── RowError           a row that cannot become a message
├── WriteFailed        rows could not be sent, after all retries
└── CommitFailed       prepared messages could not all be made visible
"""

import json

from mq.client.errors import MQError


class PipelineError(MQError):
    """Base class of the errors that the data source raises itself."""


class OptionError(PipelineError):
    """The option called `name` cannot be used."""

    def __init__(self, name: str, reason: str, example: str, instead: str = "") -> None:
        """`example` is a valid value: of the option, or of the one to use `instead`."""
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
    """A broker refuses the access key of the option, or the key lacks a permission."""


class OldSpark(PipelineError):
    """This release of Spark lacks what a query needs."""

    def __init__(self, what: str, why: str) -> None:
        from pyspark import __version__

        super().__init__(f"{what} needs Spark 4.2 or later, and this is {__version__}: {why}")


class SchemaError(PipelineError):
    """The schema has a column that messages do not have."""


class DataLoss(PipelineError):
    """Messages that the query was to read are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. To continue without them, and only report them in the log: "
            '.option("failOnDataLoss", "false")'
        )
        self.what = what


class Damaged(PipelineError):
    """Data is damaged; a query can continue without it, or with the damaged data."""

    way_on = ""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {self.way_on}")
        self.what = what

    def __reduce__(self) -> tuple[type["Damaged"], tuple[str]]:
        return type(self), (self.what,)


class DamagedStore(Damaged):
    """A part of a commit log that should hold messages does not."""

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
    """A broker stays unavailable in the middle of a micro-batch.

    Its messages are not lost, and a stream that continued would never return to them: so this fails
    regardless of failOnDataLoss.
    """

    retriable = True

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Nothing is lost: start the broker, and the query again; it continues there"
        )


class BrokerDown(PipelineError):
    """A broker did not answer, after all retries."""

    retriable = True

    def __init__(self, broker_name: str, topic: str, reason: str) -> None:
        super().__init__(
            f"broker {broker_name} of topic {topic} does not answer: {reason}. Start it, or leave "
            'its queues out: .option("failOnDataLoss", "false")'
        )
        self.broker_name = broker_name
        self.topic = topic


class PartitionOccupied(PipelineError):
    """A broker of TubeMQ lets one client of a group read a partition, and another one does so."""

    retriable = True

    def __init__(self, key: str, group: str, seconds: float, reason: str) -> None:
        super().__init__(
            f"partition {key}: another client of group {group} has had it for {seconds:g} s: "
            f"{reason}. A query needs a group of its own, which no consumer uses and no other "
            'query that runs at the same time: .option("group", ...). A partition of a killed task '
            'is free after half a minute; to wait longer: .option("occupiedTimeoutMs", ...)'
        )
        self.key = key
        self.group = group
        self.seconds = seconds
        self.reason = reason

    def __reduce__(self) -> tuple[type["PartitionOccupied"], tuple[str, str, float, str]]:
        return PartitionOccupied, (self.key, self.group, self.seconds, self.reason)


class RowError(PipelineError):
    """A row that cannot become a message."""


class WriteFailed(PipelineError):
    """Rows could not be sent, after all retries."""


class CommitFailed(PipelineError):
    """Prepared messages could not all be made visible."""
