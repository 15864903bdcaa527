"""What `mq` ends with: 0 done, 1 partly done, the numbers of sysexits.h, and 79 behind them."""

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses. Scripts rely on them: never renumber. `MEANINGS` says when each is used."""

    DONE = 0
    PARTLY = 1
    CRITICAL = 2
    UNKNOWN = 3
    USAGE = 64
    BAD_DATA = 65
    NOT_FOUND = 66
    UNAVAILABLE = 69
    INTERNAL = 70
    CANNOT_CREATE = 73
    IO_ERROR = 74
    TRY_AGAIN = 75
    PROTOCOL = 76
    NO_PERMISSION = 77
    CONFIG = 78
    LOCKED = 79
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    Status.DONE: "All was done.",
    Status.PARTLY: "Some brokers or items were done, others were not: standard error says which. "
    "Of mq doctor: something is not as it should be.",
    Status.CRITICAL: "mq doctor --nagios: something is critical.",
    Status.UNKNOWN: "mq doctor --nagios: something could not be looked at.",
    Status.USAGE: "The command line is wrong.",
    Status.BAD_DATA: "What was given or stored cannot be read.",
    Status.NOT_FOUND: "There is no such topic, group, message, cluster, broker or file.",
    Status.UNAVAILABLE: "A name server or broker cannot be reached, or refuses.",
    Status.INTERNAL: "A bug in mq.",
    Status.CANNOT_CREATE: "An output file cannot be written.",
    Status.IO_ERROR: "Reading or writing failed.",
    Status.TRY_AGAIN: "Busy or timed out: the same command may succeed later.",
    Status.PROTOCOL: "The peer answered something that is not RocketMQ's protocol.",
    Status.NO_PERMISSION: "The broker or the system does not permit it.",
    Status.CONFIG: "A configuration file or an environment variable is wrong.",
    Status.LOCKED: "Another mq is at work on the same file.",
    Status.HUNG_UP: "Ended by SIGHUP: its terminal has gone.",
    Status.INTERRUPTED: "Ended with Ctrl-C, or with an answer other than yes to a question.",
    Status.TERMINATED: "Ended by SIGTERM.",
}
