"""The id that controllers have given a broker, as Java's brokers keep it (BrokerMetadata).

    brokerIdentity         cluster#brokerName#id
    brokerIdentity-temp    cluster#brokerName#id#checkCode, while the id is applied for

Texts without an end of line. The check code is what tells one applicant for an id from another: the
broker's address and the time in ms. Who applies again with the same one is given the same id. So
the application is on the disk before it is sent, and stays there until the answer is known: a
broker that is killed between two steps goes on with the very id it has applied for.

Every write is whole or absent, and survives the death of the machine.
"""

from dataclasses import dataclass
from pathlib import Path

from mq.client.machine import files
from mq.daemons.service import CannotStart
from mq.daemons.state_file import make_folder

_SEPARATOR = "#"
_MOST_BYTES = 4096  # of either file: two names of 255 characters, an address, two numbers


@dataclass(frozen=True, slots=True)
class Application:
    """An id that is applied for, and the check code that shows who does."""

    broker_id: int
    check_code: str


class IdentityFiles:
    """Both files of one broker. All calls raise OSError, and may be made in a thread."""

    def __init__(self, path: Path, cluster: str, name: str) -> None:
        self.path = path
        self._temporary = path.with_name(path.name + "-temp")
        self._cluster = cluster
        self._name = name

    def read(self) -> int | None:
        """The id that this broker has; None if it has none yet.

        Raises CannotStart for the file of another broker, and for one that cannot be read: a new id
        in its place would make this store a stranger to its set.
        """
        parts = self._read(self.path, 3)
        if parts is None:
            return None
        files.remove(self._temporary)  # killed before it was removed
        return _number(self.path, parts[2])

    def read_application(self) -> Application | None:
        """What was applied for, and not answered, before this start. Raises CannotStart as `read`.

        A half file cannot be: it was renamed into its place.
        """
        parts = self._read(self._temporary, 4)
        if parts is None:
            return None
        return Application(_number(self._temporary, parts[2]), parts[3])

    def apply(self, application: Application) -> None:
        """Write down what is about to be applied for."""
        text = (str(application.broker_id), application.check_code)
        self._write(self._temporary, *text)

    def accept(self, application: Application) -> None:
        """The controllers have given what was applied for."""
        self._write(self.path, str(application.broker_id))
        self.drop_application()

    def drop_application(self) -> None:
        """The controllers have refused it."""
        files.remove(self._temporary)
        files.sync_folder(self.path.parent)

    def _read(self, path: Path, count: int) -> list[str] | None:
        try:
            data = files.read_bytes(path, _MOST_BYTES)
        except FileNotFoundError:
            return None
        parts = data.decode(errors="replace").strip().split(_SEPARATOR, count - 1)
        if len(parts) != count:
            raise CannotStart(
                f"{path} does not hold an id of controllers (cluster#brokerName#id): if it is lost,"
                f" move the file away, and the broker gets a new id"
            )
        if parts[:2] != [self._cluster, self._name]:
            raise CannotStart(
                f"{path} is of broker {parts[1]} of cluster {parts[0]}, and the settings say "
                f"{self._name} of {self._cluster} (brokerName, brokerClusterName): a store belongs "
                f"to the set that its messages are of"
            )
        return parts

    def _write(self, path: Path, *parts: str) -> None:
        text = _SEPARATOR.join((self._cluster, self._name, *parts))
        make_folder(path.parent)
        new = path.with_name(path.name + ".tmp")
        files.write_new(new, text.encode())
        files.replace(new, path)
        files.sync_folder(path.parent)


def _number(path: Path, text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise CannotStart(f"{path}: {text[:30]!r} is no id of a broker; they begin with 1")
    return int(text)
