"""What `mq` ends with: 0 done, 1 partly done, and the numbers of sysexits.h for the rest."""

from enum import IntEnum


class Status(IntEnum):
    """Exit statuses. Scripts rely on them: never renumber."""

    DONE = 0
    PARTLY = 1  # some brokers or items were done, others were not
    USAGE = 64  # the command line is wrong
    BAD_DATA = 65  # what was given or stored cannot be read
    NOT_FOUND = 66  # no such topic, group, message, cluster, broker or file
    UNAVAILABLE = 69  # a name server or broker cannot be reached
    INTERNAL = 70  # a bug in mq
    CANNOT_CREATE = 73  # an output file cannot be written
    IO_ERROR = 74
    TRY_AGAIN = 75  # busy or timed out; the same command may succeed later
    PROTOCOL = 76  # the peer answered something that is not RocketMQ's protocol
    NO_PERMISSION = 77
    CONFIG = 78  # a configuration file or environment variable is wrong
    INTERRUPTED = 130  # Ctrl-C
