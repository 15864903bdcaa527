"""What goes wrong in an operation, for a command or a page to tell its user.

OperationError     one line that names the cause, and perhaps a next step
├── InvalidRequest what is asked for makes no sense; names the parameters that are wrong
├── NotFound       what was asked for does not exist
├── BadData        what was given or is stored cannot be read, or contradicts itself
├── Misdeclared    a file that declares how things are to be is wrong
├── Unavailable    a broker is away, or cannot do it
├── Busy           somebody else does it just now: the same may succeed later
├── Locked         another process is at work on the same file
└── CannotWrite    a file cannot be written

Their texts name no option and no command: who shows an error knows what its users have.
"""

from enum import StrEnum


class NextStep(StrEnum):
    """A hint that whoever shows it may have better words for."""

    LIST_CLUSTERS = "look at the clusters and brokers there are"
    LIST_GROUPS = "look at the consumer groups there are"
    LIST_TOPICS = "look at the topics there are"
    LIST_DEAD_LETTERS = "look at the groups that have dead letters"
    SHOW_DEAD_LETTERS = "look at the dead letters of the group"
    LOOK_AT_ROUTE = "look at the topic's route"
    LOOK_AT_QUEUES = "look at what each queue of the topic holds"
    NAME_QUEUES = "write [BROKER:]QUEUE=[BROKER:]QUEUE, with queues of the topic's route"
    BEGIN_AGAIN = "remove it, or do not go on from it, to begin again"
    GO_ON_LATER = (
        "go on when its brokers are back; to begin again with the queues that there are now, "
        "remove the state"
    )
    CORRECT_THE_LINE = "the lines before it are sent; correct it and go on"
    SEND_THE_REST = "the lines before it are sent; correct it, and send it and those after it"
    SEND_FROM_A_FILE = (
        "the lines before it are sent, and maybe some after it: only from a file each goes once"
    )
    MAKE_ROOM = "make room, and go on"
    EXPORT_OFFSETS = "nothing was done; a file of offsets is made by exporting them"
    RESET_AT_BROKERS = "set the offsets that the brokers keep, while no consumer runs"
    RESET_WHOLE_TOPIC = "stop them first, or reset the whole topic"


class Parameter(str):
    """The name of a parameter within the text of an InvalidRequest."""


class OperationError(Exception):
    """Ends an operation: `message` in one line, `hint` with the next step, or empty.

    `subject` is what a NextStep is about: the name of a topic.
    """

    def __init__(self, message: str, *, hint: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.subject = subject


class InvalidRequest(OperationError):
    """What is asked for makes no sense.

    `parts` make the message; those that are a Parameter may be shown by another name.
    """

    def __init__(self, *parts: str, hint: str = "") -> None:
        super().__init__("".join(parts), hint=hint)
        self.parts = parts


class NotFound(OperationError):
    """What was asked for does not exist."""


class BadData(OperationError):
    """What was given or is stored cannot be read, or contradicts itself."""


class Misdeclared(OperationError):
    """A file that declares how things are to be is wrong, or does not say enough."""


class Unavailable(OperationError):
    """A broker that is needed is away, or cannot do what is asked for."""


class Busy(OperationError):
    """Somebody else does it just now."""


class Locked(OperationError):
    """Another process is at work on the same file."""


class CannotWrite(OperationError):
    """A file cannot be written."""
