"""The exit statuses of `mq`: 0 done, 1 partly done, the numbers of sysexits.h, then 79."""

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses. Scripts rely on them: never renumber. `MEANINGS` describes each."""

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
    Status.DONE: "Success.",
    Status.PARTLY: "Some brokers or items failed, others succeeded: see standard error. mq doctor: "
    "there are problems.",
    Status.CRITICAL: "mq doctor --nagios: a check is critical.",
    Status.UNKNOWN: "mq doctor --nagios: a check could not be completed.",
    Status.USAGE: "The command line is wrong.",
    Status.BAD_DATA: "Input or stored data cannot be read.",
    Status.NOT_FOUND: "A topic, group, message, cluster, broker or file does not exist.",
    Status.UNAVAILABLE: "A name server or broker cannot be reached, or refuses.",
    Status.INTERNAL: "A bug in mq.",
    Status.CANNOT_CREATE: "An output file cannot be written.",
    Status.IO_ERROR: "Reading or writing failed.",
    Status.TRY_AGAIN: "Busy or timed out: the same command may succeed later.",
    Status.PROTOCOL: "The peer's reply is not RocketMQ's protocol.",
    Status.NO_PERMISSION: "The broker or the system denied permission.",
    Status.CONFIG: "A configuration file or an environment variable is wrong.",
    Status.LOCKED: "Another mq process uses the same file.",
    Status.HUNG_UP: "Ended by SIGHUP: the terminal was closed.",
    Status.INTERRUPTED: "Ended with Ctrl-C, or a question was not answered with yes.",
    Status.TERMINATED: "Ended by SIGTERM.",
}
