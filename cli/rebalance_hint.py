"""The hint for brokers that report no member of a group and have just started."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mq.cli.runtime.call import Call

if TYPE_CHECKING:
    from mq.client.admin import Admin


async def report_if_early(call: Call, admin: "Admin", without: Iterable[str]) -> None:
    """Report which brokers without members have just started: members may not be registered yet."""
    from mq.client.operations.uptime import too_early

    for line in await too_early(admin, without):
        call.environment.report(f"mq {call.name}: {line}")
