"""The data of a console, collected once: pages have it without waiting for the collector."""

from dataclasses import dataclass, replace

from mq.client.admin import Admin
from mq.client.operations.connections import client_of
from mq.client.transport.session import Session
from mq.daemons.console.collector.snapshot import (
    BrokerRow,
    ClusterRow,
    GroupRow,
    GroupTopicRow,
    ProducerRow,
    Snapshot,
    TopicRow,
)
from mq.daemons.console.route import Permission
from mq.daemons.console.security.roles import LOCAL
from mq.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from tests.daemons.console.site import Site

AT = 1_700_000_000_000


@dataclass
class Known:
    """Replaces the collector with a snapshot of a test."""

    snapshot: Snapshot


def kind_of(name: str) -> str:
    for prefix, kind in ((RETRY_PREFIX, "retry"), (DEAD_LETTER_PREFIX, "dlq")):
        if name.startswith(prefix):
            return kind
    return "normal"


async def look(site: Site) -> Snapshot:
    """Query the broker of the console, and set its snapshot."""
    admin = Admin(site.here.session)
    broker = site.pair.broker
    name, cluster = broker.settings.broker.broker_name, broker.settings.broker.broker_cluster_name
    configs = (await admin.topic_configs(broker.address)).topic_config_table
    groups = (await admin.subscription_groups(broker.address)).subscription_group_table
    offsets = await admin.all_consumer_offsets(broker.address)
    producers = (await admin.producers(broker.address)).data
    reading: dict[str, set[str]] = {}
    for key in offsets:
        topic, _, group = key.rpartition("@")
        reading.setdefault(group, set()).add(topic)
    return put(
        site,
        Snapshot(
            at=AT,
            clusters=(ClusterRow(cluster, (name,)),),
            brokers=(BrokerRow(cluster, name, 0, broker.address, "master", seen=AT),),
            topics=tuple(
                TopicRow(
                    topic,
                    kind_of(topic),
                    config.read_queue_nums,
                    config.write_queue_nums,
                    (name,),
                    config.perm,
                    groups=tuple(sorted(g for g, read in reading.items() if topic in read)),
                )
                for topic, config in sorted(configs.items())
            ),
            groups=tuple(
                GroupRow(
                    group,
                    brokers=(name,),
                    enabled=config.consume_enable,
                    topics=tuple(GroupTopicRow(t) for t in sorted(reading.get(group, ()))),
                )
                for group, config in sorted(groups.items())
            ),
            producers=tuple(
                ProducerRow(
                    group,
                    row.client_id,
                    row.address,
                    row.language,
                    row.version,
                    (broker.address,),
                )
                for group, clients in sorted(producers.items())
                for row in map(client_of, clients)
            ),
        ),
    )


def unguarded(site: Site) -> Session:
    """The cluster for changes of a test, with the console's own connections."""
    return site.here.changing(LOCAL, Permission.ADMINISTER, lambda address, command: None)


def put(site: Site, snapshot: Snapshot) -> Snapshot:
    """Set the console's snapshot."""
    site.here.collector = Known(snapshot)
    return snapshot


def add(site: Site, **rows: tuple[object, ...]) -> Snapshot:
    """Add rows to the snapshot, in their order."""
    now = site.here.snapshot
    changed = {
        name: tuple(sorted([*getattr(now, name), *more], key=lambda row: getattr(row, "name", "")))
        for name, more in rows.items()
    }
    return put(site, replace(now, **changed))  # type: ignore[arg-type]
