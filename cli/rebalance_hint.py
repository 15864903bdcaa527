"""What a command says where brokers name no member of a group that have just started."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mq.cli.runtime.call import Call

if TYPE_CHECKING:
    from mq.client.admin import Admin


async def tell_if_early(call: Call, admin: "Admin", without: Iterable[str]) -> None:
    """Say which of the brokers that know no member have just started: more may be there."""
    from mq.client.operations.uptime import too_early

    for line in await too_early(admin, without):
        call.environment.tell(f"mq {call.name}: {line}")
