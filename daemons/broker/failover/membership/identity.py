"""The id that controllers have assigned to a broker, stored as by Java's brokers (BrokerMetadata).

    brokerIdentity         cluster#brokerName#id
    brokerIdentity-temp    cluster#brokerName#id#checkCode, while the id is applied for

These are texts without an end of line. The check code, the broker's address and the time in ms,
distinguishes the applicants for an id. An applicant that repeats its application with the same
check code is assigned the same id. So the application is on the disk before it is sent, and stays
there until the answer is known: a broker that is killed in between continues with the id for which
it has applied.

Every write is atomic, and survives a power failure.
"""

from dataclasses import dataclass
from pathlib import Path

from mq.client.machine import files
from mq.daemons.service import CannotStart
from mq.daemons.state_file import make_folder

_SEPARATOR = "#"
_MAX_BYTES = 4096  # of either file: two names of 255 characters, an address, two numbers


@dataclass(frozen=True, slots=True)
class Application:
    """An id that is applied for, and the check code of the applicant."""

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
        """Return the id of this broker; None if it has none yet.

        Raises CannotStart for the file of another broker, and for an unreadable file: with a new id
        this store would no longer belong to its replica set.
        """
        parts = self._read(self.path, 3)
        if parts is None:
            return None
        files.remove(self._temporary)  # the broker was killed before it removed this file
        return _number(self.path, parts[2])

    def read_application(self) -> Application | None:
        """Return a pending application from before this start. Raises CannotStart as `read`.

        The file is never incomplete, because it was renamed into place.
        """
        parts = self._read(self._temporary, 4)
        if parts is None:
            return None
        return Application(_number(self._temporary, parts[2]), parts[3])

    def apply(self, application: Application) -> None:
        """Save an application before it is sent."""
        text = (str(application.broker_id), application.check_code)
        self._write(self._temporary, *text)

    def accept(self, application: Application) -> None:
        """Save the assigned id after the controllers have accepted an application."""
        self._write(self.path, str(application.broker_id))
        self.drop_application()

    def drop_application(self) -> None:
        """Delete an application that the controllers have refused."""
        files.remove(self._temporary)
        files.sync_folder(self.path.parent)

    def _read(self, path: Path, count: int) -> list[str] | None:
        try:
            data = files.read_bytes(path, _MAX_BYTES)
        except FileNotFoundError:
            return None
        parts = data.decode(errors="replace").strip().split(_SEPARATOR, count - 1)
        if len(parts) != count:
            raise CannotStart(
                f"{path} does not contain an id assigned by controllers (cluster#brokerName#id): "
                f"if the id is lost, move the file away, and the broker gets a new one"
            )
        if parts[:2] != [self._cluster, self._name]:
            raise CannotStart(
                f"{path} is of broker {parts[1]} of cluster {parts[0]}, but the settings say "
                f"{self._name} of {self._cluster} (brokerName, brokerClusterName): a store belongs "
                f"to the replica set whose messages it has"
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
        raise CannotStart(f"{path}: {text[:30]!r} is not a broker id; these start at 1")
    return int(text)
