"""Declarations of options, whose names are not case-sensitive.

A field of an options class declares its name, its parser, its default and a valid example for error
messages.
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

    from mq.client.transport.blocking import BlockingSession

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
    """Declare a field. `parse` raises ValueError or ClientError for invalid text."""
    return field(default=default, metadata={"name": name, "parse": parse, "example": example})


def _acl_file(text: str) -> AccessKey:
    """Read the key on the driver; executors get it with their tasks, and need no file."""
    return read_access_key(Path(text))


@dataclass(frozen=True)
class ClientOptions:
    """Credentials and encryption of connections to a cluster of either system."""

    access_key: AccessKey | None = option("aclFile", _acl_file, "/etc/mq/tools.yml")
    tls: bool = option("useTLS", parsing.yes, "true", False)
    tls_properties: tuple[tuple[str, str], ...] = ()

    def context(self) -> "ssl.SSLContext | None":
        """Return the TLS context of connections; None without TLS.

        Raises ClientError for TLS files that cannot be used.
        """
        if not self.tls:
            return None
        # ssl takes long to import, and is not needed to list jobs
        from mq.client.transport.tls import client_context

        return client_context(dict(self.tls_properties))

    def check_tls(self) -> None:
        """Raises OptionError for TLS files that cannot be used."""
        try:
            self.context()
        except ClientError as error:
            raise OptionError("useTLS", str(error), "true") from None


@dataclass(frozen=True)
class ClusterOptions(ClientOptions):
    """Address of the cluster, and the credentials."""

    name_server: str = option("nameServer", parsing.name_servers, "127.0.0.1:9876")

    def open_session(self, timeout: float) -> "BlockingSession":
        """Open a session whose requests take at most `timeout` seconds.

        Raises ClientError for TLS files that cannot be used.
        """
        from mq.client.transport.blocking import BlockingSession

        return BlockingSession(
            self.name_server, timeout=timeout, credentials=self.access_key, tls=self.context()
        )

    def check_cluster(self) -> None:
        """Raises OptionError for an option that cannot be used."""
        if not self.name_server:
            raise wrong(type(self), "nameServer", "it is needed: the address of a name server")
        self.check_tls()


@dataclass(frozen=True)
class PlanOptions:
    """Options for the planning of reads, of either system."""

    starting_offsets: Position | None = None
    ending_offsets: Position | None = None
    fail_on_data_loss: bool = option("failOnDataLoss", parsing.yes, "false", True)
    retries: int = option("numRetries", parsing.number(0, 1000), "3", 3)
    retry_pause_ms: int = option("retryIntervalMs", parsing.number(0, 600_000), "1000", 1000)
    max_offsets: int | None = option("maxOffsetsPerTrigger", parsing.number(1, 2**53), "100000")
    min_offsets: int | None = option("minOffsetsPerTrigger", parsing.number(1, 2**53), "1000")
    max_delay: float = option("maxTriggerDelay", parsing.seconds, "15m", 900.0)


def read_declared(kind: type[T], given: Mapping[str, str]) -> T:
    """Build options of a class from texts.

    Raises OptionError that names the option and shows a valid one.
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
    """Return a valid value of an option."""
    text: str = _declared(kind)[name.lower()].metadata["example"]
    return text


def wrong(
    kind: type[Any], name: str, reason: str, error: type[OptionError] = OptionError
) -> OptionError:
    """Return the error about an option of a class, with its example."""
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
