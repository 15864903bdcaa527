"""Declarations of options, which are read whatever the case of their names.

A field of an options class says its name, how its text is read, what it is by default and a right
example for whoever got it wrong.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError
from mq.pipeline import parsing
from mq.pipeline.errors import OptionError
from mq.pipeline.parsing import Position

if TYPE_CHECKING:
    import ssl

    from mq.client.blocking import BlockingSession

T = TypeVar("T")

_TLS_NAMES = (
    "tls.client.trustCertPath",
    "tls.client.authServer",
    "tls.client.certPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
)
_TLS_BY_LOWER = {name.lower(): name for name in _TLS_NAMES}


def option(name: str, parse: Callable[[str], Any], example: str, default: Any = None) -> Any:
    """A field: `parse` raises ValueError or ClientError for text that is wrong."""
    return field(default=default, metadata={"name": name, "parse": parse, "example": example})


def _acl_file(text: str) -> AccessKey:
    """Read on the driver; executors get the key with their tasks, and need no file."""
    return read_access_key(Path(text))


@dataclass(frozen=True)
class ClientOptions:
    """Who asks a cluster of either system, and how it is encrypted."""

    access_key: AccessKey | None = option("aclFile", _acl_file, "/etc/mq/tools.yml")
    tls: bool = option("useTLS", parsing.yes, "true", False)
    tls_properties: tuple[tuple[str, str], ...] = ()

    def context(self) -> "ssl.SSLContext | None":
        """What connections are encrypted with; None if they are not.

        Raises ClientError for TLS files that cannot be used.
        """
        if not self.tls:
            return None
        from mq.client.tls import client_context  # ssl is long to import, and jobs are listed too

        return client_context(dict(self.tls_properties))

    def check_tls(self) -> None:
        """Raises OptionError for TLS files that cannot be used."""
        try:
            self.context()
        except ClientError as error:
            raise OptionError("useTLS", str(error), "true") from None


@dataclass(frozen=True)
class ClusterOptions(ClientOptions):
    """Where the cluster is, and who asks."""

    name_server: str = option("nameServer", parsing.name_servers, "127.0.0.1:9876")

    def open_session(self, timeout: float) -> "BlockingSession":
        """A session whose requests take `timeout` seconds at most.

        Raises ClientError for TLS files that cannot be used.
        """
        from mq.client.blocking import BlockingSession

        return BlockingSession(
            self.name_server, timeout=timeout, credentials=self.access_key, tls=self.context()
        )

    def check_cluster(self) -> None:
        """Raises OptionError for what cannot be used."""
        if not self.name_server:
            raise wrong(type(self), "nameServer", "it is needed: the address of a name server")
        self.check_tls()


@dataclass(frozen=True)
class PlanOptions:
    """How reads are planned, of either system."""

    starting_offsets: Position | None = None
    ending_offsets: Position | None = None
    fail_on_data_loss: bool = option("failOnDataLoss", parsing.yes, "false", True)
    retries: int = option("numRetries", parsing.number(0, 1000), "3", 3)
    retry_pause_ms: int = option("retryIntervalMs", parsing.number(0, 600_000), "1000", 1000)
    max_offsets: int | None = option("maxOffsetsPerTrigger", parsing.number(1, 2**53), "100000")
    min_offsets: int | None = option("minOffsetsPerTrigger", parsing.number(1, 2**53), "1000")
    max_delay: float = option("maxTriggerDelay", parsing.seconds, "15m", 900.0)


def read_declared(kind: type[T], given: Mapping[str, str]) -> T:
    """Make options of a kind from texts.

    Raises OptionError that names the option and shows a right one.
    """
    known = _declared(kind)
    values: dict[str, Any] = {}
    tls_properties = []
    for key, text in given.items():
        name = key.lower()
        if name in _TLS_BY_LOWER and issubclass(kind, ClientOptions):
            tls_properties.append((_TLS_BY_LOWER[name], text))
        elif name in known:
            values[known[name].name] = _read(known[name].metadata, text)
        else:
            raise _unknown(known, key)
    if tls_properties:
        values["tls_properties"] = tuple(tls_properties)
    return kind(**values)


def example_of(kind: type[Any], name: str) -> str:
    """A right value of an option."""
    text: str = _declared(kind)[name.lower()].metadata["example"]
    return text


def wrong(
    kind: type[Any], name: str, reason: str, error: type[OptionError] = OptionError
) -> OptionError:
    """The error about an option of a kind, with its example."""
    return error(name, reason, example_of(kind, name))


def _declared(kind: type[Any]) -> dict[str, "Field[Any]"]:
    return {each.metadata["name"].lower(): each for each in fields(kind) if "name" in each.metadata}


def _read(declared: Mapping[str, Any], text: str) -> Any:
    try:
        return declared["parse"](text)
    except (ValueError, ClientError) as error:
        raise OptionError(declared["name"], str(error), declared["example"]) from None


def _unknown(known: Mapping[str, "Field[Any]"], key: str) -> OptionError:
    near = difflib.get_close_matches(key.lower(), known, 1, 0.0)[0]
    metadata = known[near].metadata
    name, example = metadata["name"], metadata["example"]
    return OptionError(key, f"there is none; did you mean {name}?", example, name)
