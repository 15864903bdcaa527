"""Errors of brokers that are too old, or too new, for a request."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from mq.client.errors import RequestNotSupported

if TYPE_CHECKING:
    from mq.client.admin import Admin

T = TypeVar("T")


class OlderBroker(RequestNotSupported):
    """The broker at `address` does not support a request of RocketMQ 5."""

    def __init__(self, address: str, command: str) -> None:
        super().__init__(None, address)
        self.command = command

    def __str__(self) -> str:
        return f"{self.address}: the broker is older than RocketMQ 5, which {self.command} needs"


class NewerBroker(RequestNotSupported):
    """The broker at `address` no longer supports the accounts of 4.9."""

    def __init__(self, address: str) -> None:
        super().__init__(None, address)

    def __str__(self) -> str:
        return (
            f"{self.address}: the broker does not support the accounts of 4.9; RocketMQ 5.3 "
            "replaced them by users and policies: mq listUser, mq listAcl"
        )


def until_5(
    act: Callable[["Admin", str], Coroutine[Any, Any, T]],
) -> Callable[["Admin", str], Coroutine[Any, Any, T]]:
    """Return `act`, for `cluster.at_each`, raising NewerBroker if the request is not supported."""

    async def guarded(admin: "Admin", address: str) -> T:
        try:
            return await act(admin, address)
        except RequestNotSupported:
            raise NewerBroker(address) from None

    return guarded


def since_5(
    command: str, act: Callable[["Admin", str], Coroutine[Any, Any, T]]
) -> Callable[["Admin", str], Coroutine[Any, Any, T]]:
    """Return `act`, for `cluster.at_each`, raising OlderBroker if the request is not supported."""

    async def guarded(admin: "Admin", address: str) -> T:
        try:
            return await act(admin, address)
        except RequestNotSupported:
            raise OlderBroker(address, command) from None

    return guarded
