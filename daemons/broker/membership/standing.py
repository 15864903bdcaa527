"""How much of the log of its set a broker has: what controllers elect by, of members in sync."""

from typing import NamedTuple

from mq.daemons.broker.app import Broker


class Standing(NamedTuple):
    """The epoch of the last record, the end of the log, and up to where it is agreed on."""

    epoch: int
    max_offset: int
    confirm_offset: int


NOTHING = Standing(-1, -1, -1)  # not known: a controller does not count that as less than before


def standing_of(broker: Broker) -> Standing:
    """Of a broker that runs."""
    replication = broker.replication
    return Standing(
        replication.last_epoch, broker.stores.messages.log.written, replication.confirmed
    )
