"""What clients of TubeMQ are told by the options of a command."""

from typing import TYPE_CHECKING, Any

from mq.cli.runtime.call import Call

if TYPE_CHECKING:
    from mq.client.credentials import AccessKey

_LEAST_TIMEOUT = 8.0  # seconds; the original takes no less


def client_options(call: Call, key: "AccessKey | None") -> dict[str, Any]:
    """Keywords of `TubeClientOptions`. An access key is a user and a password here."""
    from mq.client.tube.credentials import TubeCredentials

    return {
        "credentials": None if key is None else TubeCredentials(key.access_key, key.secret_key),
        "tls": call.tls(),
        "timeout": max(call.timeout, _LEAST_TIMEOUT),
        "connect_timeout": call.timeout,
    }
