"""What only brokers of RocketMQ 5 can do, and how a broker that is older is told of."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from mq.client.errors import RequestNotSupported

if TYPE_CHECKING:
    from mq.client.admin import Admin

T = TypeVar("T")


class OlderBroker(RequestNotSupported):
    """The broker at `address` does not know a request that came with RocketMQ 5."""

    def __init__(self, address: str, command: str) -> None:
        super().__init__(None, address)
        self.command = command

    def __str__(self) -> str:
        return f"{self.address}: the broker is older than RocketMQ 5, which {self.command} needs"


class NewerBroker(RequestNotSupported):
    """The broker at `address` no longer knows the accounts of 4.9."""

    def __init__(self, address: str) -> None:
        super().__init__(None, address)

    def __str__(self) -> str:
        return (
            f"{self.address}: the broker has no accounts as 4.9 has them; since RocketMQ 5.3 there "
            "are users and policies: mq listUser, mq listAcl"
        )


def until_5(
    act: Callable[["Admin", str], Coroutine[Any, Any, T]],
) -> Callable[["Admin", str], Coroutine[Any, Any, T]]:
    """`act`, for `cluster.at_each`, raising NewerBroker where the request is not known."""

    async def guarded(admin: "Admin", address: str) -> T:
        try:
            return await act(admin, address)
        except RequestNotSupported:
            raise NewerBroker(address) from None

    return guarded


def since_5(
    command: str, act: Callable[["Admin", str], Coroutine[Any, Any, T]]
) -> Callable[["Admin", str], Coroutine[Any, Any, T]]:
    """`act`, for `cluster.at_each`, raising OlderBroker where the request is not known."""

    async def guarded(admin: "Admin", address: str) -> T:
        try:
            return await act(admin, address)
        except RequestNotSupported:
            raise OlderBroker(address, command) from None

    return guarded
