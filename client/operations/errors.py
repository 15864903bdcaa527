"""Errors of operations, which a command or a page shows to its user.

OperationError     one line that names the cause, and perhaps a next step
  ├── InvalidRequest the request is inconsistent; names the wrong parameters
  ├── NotFound       the requested object does not exist
  ├── BadData        given or stored data cannot be read, or is inconsistent
  ├── Misdeclared    a declaration file is invalid
  ├── Unavailable    a broker is unavailable, or does not support the operation
  ├── Busy           another process runs the same operation: a retry may succeed
  ├── Locked         another process is using the same file
  └── CannotWrite    a file cannot be written

The texts name no options and no commands: whoever shows an error knows the user's interface.
"""

from enum import StrEnum


class NextStep(StrEnum):
    """A hint that an interface may replace with a more specific one."""

    LIST_CLUSTERS = "list the clusters and brokers"
    LIST_GROUPS = "list the consumer groups"
    LIST_TOPICS = "list the topics"
    LIST_DEAD_LETTERS = "list the groups with dead letters"
    SHOW_DEAD_LETTERS = "show the dead letters of the group"
    LOOK_AT_ROUTE = "show the topic's route"
    LOOK_AT_QUEUES = "show the offsets of the topic's queues"
    NAME_QUEUES = "write [BROKER:]QUEUE=[BROKER:]QUEUE, with queues of the topic's route"
    BEGIN_AGAIN = "remove it, or do not resume from it, to start again"
    GO_ON_LATER = (
        "resume when its brokers are back; to start again with the current queues, remove the state"
    )
    CORRECT_THE_LINE = "the lines before it are sent; correct it and resume"
    SEND_THE_REST = "the lines before it are sent; correct it, and send it and those after it"
    SEND_FROM_A_FILE = (
        "the lines before it are sent, and maybe some after it: only from a file each goes once"
    )
    MAKE_ROOM = "free some space, and resume"
    EXPORT_OFFSETS = "nothing was done; a file of offsets is made by exporting them"
    RESET_AT_BROKERS = "set the offsets that the brokers keep, while no consumer runs"
    RESET_WHOLE_TOPIC = "stop them first, or reset the whole topic"


class Parameter(str):
    """The name of a parameter within the text of an InvalidRequest."""


class OperationError(Exception):
    """Ends an operation: `message` is one line, `hint` is the next step or empty.

    `subject` is the object of a NextStep: the name of a topic.
    """

    def __init__(self, message: str, *, hint: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.subject = subject


class InvalidRequest(OperationError):
    """The request is inconsistent.

    `parts` make up the message; an interface may show other names for those that are a Parameter.
    """

    def __init__(self, *parts: str, hint: str = "") -> None:
        super().__init__("".join(parts), hint=hint)
        self.parts = parts


class NotFound(OperationError):
    """The requested object does not exist."""


class BadData(OperationError):
    """Given or stored data cannot be read, or is inconsistent."""


class Misdeclared(OperationError):
    """A declaration file is invalid or incomplete."""


class Unavailable(OperationError):
    """A required broker is unavailable, or does not support the operation."""


class Busy(OperationError):
    """Another process runs the same operation now."""


class Locked(OperationError):
    """Another process is using the same file."""


class CannotWrite(OperationError):
    """A file cannot be written."""
