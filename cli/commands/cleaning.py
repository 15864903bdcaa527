"""Commands that let brokers clean up now. Formats: org.apache.rocketmq.tools.command.broker."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

from mq.cli.broker_options import BrokerAddr
from mq.cli.parameters import cluster_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import destroys, gives
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.options import subject
from mq.cli.show.result import Result, Row
from mq.client.operations import cluster, java_order
from mq.client.operations.columns import text
from mq.client.operations.errors import NotFound

if TYPE_CHECKING:
    from mq.client.admin import Admin

COMMANDS = {
    "broker": (
        "cleanExpiredCQ",
        "cleanUnusedTopic",
        "deleteExpiredCommitLog",
    )
}


ClusterName = Annotated[
    str | None,
    cluster_option("On every broker of this cluster. Default: all clusters.", name="--cluster"),
]

_COLUMNS = (text("brokerAddr", "Broker"),)


@destroys("delete queue files whose messages are deleted")
@gives(_COLUMNS)
@subject("broker_addr")
async def clean_expired_cq(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Delete queue files whose messages have been deleted.

    Brokers do it themselves once a day, at the hour of their `deleteWhen`.

    Examples:
        mq cleanExpiredCQ                  delete old queue files everywhere
        mq cleanExpiredCQ 127.0.0.1:10911  on one broker
    """
    return await _everywhere(
        call,
        broker_addr,
        cluster_name,
        lambda admin, address: admin.clean_expired_consume_queues(address),
    )


@destroys("delete queue files of topics that brokers have no configuration of")
@gives(_COLUMNS)
@subject("broker_addr")
async def clean_unused_topic(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Delete queue files of topics that a broker no longer has.

    Examples:
        mq cleanUnusedTopic                  delete unused queue files everywhere
        mq cleanUnusedTopic 127.0.0.1:10911  on one broker
    """
    return await _everywhere(
        call, broker_addr, cluster_name, lambda admin, address: admin.clean_unused_topics(address)
    )


@destroys("delete expired log files")
@gives(_COLUMNS)
@subject("broker_addr")
async def delete_expired_commit_log(
    call: Call, broker_addr: BrokerAddr = None, cluster_name: ClusterName = None
) -> Result:
    """Delete expired log files now, without waiting for the hour of `deleteWhen`.

    Examples:
        mq deleteExpiredCommitLog 127.0.0.1:10911  delete old log files now
        mq deleteExpiredCommitLog -c DefaultCluster --dry-run
                                                   show which brokers would be asked
    """
    return await _everywhere(
        call,
        broker_addr,
        cluster_name,
        lambda admin, address: admin.delete_expired_commit_log(address),
    )


async def _everywhere(
    call: Call,
    broker_addr: str | None,
    cluster_name: str | None,
    act: Callable[["Admin", str], Coroutine[Any, Any, None]],
) -> Result:
    """Run `act` at the broker given, or at every broker of the cluster, or at every broker."""
    for flag, value in (("-b/--brokerAddr", broker_addr), ("-c/--cluster", cluster_name)):
        if value == "":  # an empty "$BROKER" does not mean all brokers
            raise UsageError(f"{flag} is empty", hint="leave it out for all brokers")
    async with call.admin() as admin:
        targets = [broker_addr] if broker_addr else await _addresses(admin, cluster_name)
        done, failures = await cluster.at_each(admin, targets, act)
    rows: list[Row] = [(address,) for address in done]
    plain = "false" if failures else "success"  # and no line end, as in Java
    return Result(_COLUMNS, rows, plain, failures=failures)


async def _addresses(admin: "Admin", cluster_name: str | None) -> list[str]:
    info = await cluster.clusters(admin.session)
    names = [cluster_name] if cluster_name else java_order.hash_order(info.cluster_addr_table)
    found = [address for name in names for address in cluster.addresses(info, name)]
    if not found:
        raise NotFound("no broker is registered", hint="see: mq clusterList")
    return found
