"""Common code for users and policies, which each broker of 5.x keeps for itself.

They are changed at each broker of the options, and copied from one broker to another.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mq.cli import broker_options
from mq.cli.runtime.call import Call
from mq.cli.runtime.release import since_5
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster
from mq.client.operations.columns import Column, text
from mq.client.operations.errors import NotFound
from mq.client.operations.subjects.accounts import split

if TYPE_CHECKING:
    from mq.client.admin import Admin

FromBroker = Annotated[
    str, typer.Option("-f", "--fromBroker", metavar="HOST:PORT", help="Broker to copy from.")
]
ToBroker = Annotated[
    str, typer.Option("-t", "--toBroker", metavar="HOST:PORT", help="Broker to copy to.")
]


class AuthSubject(NamedTuple):
    """A kind of entry: users or policies.

    `noun` is mqadmin's word for it, `column` the column of its name, `whose` the words before a
    name in a sentence. The functions read its name, and find, list, create and update it at a
    broker.
    """

    noun: str
    whose: str
    column: Column
    name: Callable[[Any], str]
    find: Callable[["Admin", str, str], Coroutine[Any, Any, Any]]
    find_all: Callable[["Admin", str], Awaitable[list[Any]]]
    create: Callable[["Admin", str, Any], Awaitable[None]]
    update: Callable[["Admin", str, Any], Awaitable[None]]

    @property
    def changed(self) -> tuple[Column, ...]:
        return (text("brokerAddr", "Broker"), self.column)

    @property
    def copied(self) -> tuple[Column, ...]:
        return (self.column, text("fromBroker", "From"), text("toBroker", "To"))

    async def change(
        self,
        call: Call,
        broker_addr: str | None,
        cluster_name: str | None,
        verb: str,
        name: str,
        act: Callable[["Admin", str], Coroutine[Any, Any, None]],
    ) -> Result:
        """Run `act` at the broker, or at each broker of the cluster."""
        done, failures = await at_brokers(call, broker_addr, cluster_name, act)
        plain = "".join(f"{verb} {self.noun} to {address} success.\n" for address in done)
        rows: list[Row] = [(address, name) for address in done]
        return Result(self.changed, rows, plain, failures=failures)

    async def found(
        self, call: Call, broker_addr: str | None, cluster_name: str | None, name: str
    ) -> tuple[dict[str, list[Any]], list[str]]:
        """Return the entry of a name, by master that has it, and the failures of the others.

        Raises NotFound if all masters answer and none has it.
        """
        done, failures = await at_brokers(
            *(call, broker_addr, cluster_name),
            lambda admin, address: self.find(admin, address, name),
            replicas=False,
        )
        found = {address: [item] for address, item in done.items() if item is not None}
        if not found and not failures:
            raise NotFound(f"no queried broker has {self.whose} {name}")
        return found, failures

    async def copy(self, call: Call, source: str, target: str, names: str | None) -> Result:
        """Copy the entries of one broker to another, one by one; a failure does not stop the rest.

        Existing entries are updated. `names` are separated by commas; None means all. Raises the
        last error if nothing is copied.
        """
        from mq.client.errors import MQError

        async def read(admin: "Admin", address: str) -> list[Any]:
            if names is None:
                return await self.find_all(admin, address)
            found = [await self.find(admin, address, name) for name in split(names)]
            return [item for item in found if item is not None]

        done, failures = [], []
        last: MQError | None = None
        async with call.admin() as admin:
            for item in await since_5(call.name, read)(admin, source):
                try:
                    there = await self.find(admin, target, self.name(item)) is not None
                    await (self.update if there else self.create)(admin, target, item)
                except MQError as error:
                    last = error
                    failures.append(str(error))
                else:
                    done.append(self.name(item))
        if last is not None and not done:
            raise last
        plain = "".join(
            f"copy {self.noun} of {name} from {source} to {target} success.\n" for name in done
        )
        rows: list[Row] = [(name, source, target) for name in done]
        return Result(self.copied, rows, plain, failures=failures)


async def at_masters(
    call: Call,
    broker_addr: str | None,
    cluster_name: str | None,
    ask: Callable[["Admin", str], Coroutine[Any, Any, list[Any]]],
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the non-empty answers of masters, by address, and the failures of the others."""
    done, failures = await at_brokers(call, broker_addr, cluster_name, ask, replicas=False)
    return {address: items for address, items in done.items() if items}, failures


async def at_brokers(
    call: Call,
    broker_addr: str | None,
    cluster_name: str | None,
    act: Callable[["Admin", str], Coroutine[Any, Any, Any]],
    *,
    replicas: bool = True,
) -> tuple[dict[str, Any], list[str]]:
    """Run `act` at the broker given, or at the cluster's brokers. Returns results and failures."""
    async with call.admin() as admin:
        targets = await broker_options.targets(admin, broker_addr, cluster_name, replicas=replicas)
        return await cluster.at_each(admin, targets, since_5(call.name, act))
