"""Derives queues and brokers from a topic's route. No I/O."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from mq.client.errors import BadAnswer
from mq.protocol import bodies
from mq.protocol.bodies.route import MAX_QUEUES, MAX_ROUTE_QUEUES, parse_order_conf
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission
from mq.protocol.names import MASTER_ID


def decode_route(body: bytes | memoryview, address: str) -> bodies.TopicRouteData:
    """Decode the body of a route.

    Raises BadAnswer, with `address`, if it is malformed or has more queues than a topic may have.
    """
    try:
        route = bodies.TopicRouteData.decode(body)
        parse_order_conf(route.order_topic_conf or "")
    except (RemoteProtocolError, ValueError) as error:
        raise BadAnswer(address, str(error)) from None
    counts = [max(one.read_queue_nums, one.write_queue_nums) for one in route.queue_datas]
    if any(count > MAX_QUEUES for count in counts) or sum(counts) > MAX_ROUTE_QUEUES:
        raise BadAnswer(
            address,
            f"a route with {sum(counts)} queues; a topic has at most {MAX_QUEUES} at a broker and "
            f"{MAX_ROUTE_QUEUES} in all",
        )
    return route


def write_queues(topic: str, route: bodies.TopicRouteData) -> list[bodies.MessageQueue]:
    """Return the queues that a producer may send to, in order.

    An order configuration ("broker:count;broker:count") overrides the queues of the brokers.
    Otherwise they are the queues of each writable broker whose master is alive (MQClientInstance,
    topicRouteData2TopicPublishInfo).
    """
    if route.order_topic_conf:
        return [
            bodies.MessageQueue(topic, name, queue_id)
            for name, count in parse_order_conf(route.order_topic_conf)
            for queue_id in range(count)
        ]
    masters = {broker.broker_name for broker in route.broker_datas if 0 in broker.broker_addrs}
    return [
        bodies.MessageQueue(topic, queues.broker_name, queue_id)
        for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & Permission.WRITE and queues.broker_name in masters
        for queue_id in range(queues.write_queue_nums)
    ]


def read_queues(topic: str, route: bodies.TopicRouteData) -> list[bodies.MessageQueue]:
    """Return the queues that a consumer may read, in order (topicRouteData2TopicSubscribeInfo)."""
    return [
        bodies.MessageQueue(topic, queues.broker_name, queue_id)
        for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & Permission.READ
        for queue_id in range(queues.read_queue_nums)
    ]


def broker_address(
    route: bodies.TopicRouteData,
    broker_name: str,
    broker_id: int = MASTER_ID,
    *,
    exact: bool = True,
) -> str | None:
    """Return the address of a broker in the route; None if the route does not have it.

    If `exact` is False and `broker_id` is missing, any other broker of that name is returned, which
    is sufficient for reading (MQClientInstance.findBrokerAddressInSubscribe).
    """
    for broker in route.broker_datas:
        if broker.broker_name == broker_name:
            address = broker.broker_addrs.get(broker_id)
            if address is None and not exact:
                address = next(iter(broker.broker_addrs.values()), None)
            return address
    return None


def addresses_of(route: bodies.TopicRouteData, broker_name: str) -> dict[int, str]:
    """Return the addresses of a replica set by broker id; 0 is the master."""
    for broker in route.broker_datas:
        if broker.broker_name == broker_name:
            return broker.broker_addrs
    return {}


def replicas(route: bodies.TopicRouteData, broker_name: str) -> list[str]:
    """Return the addresses of a replica set, the master first if there is one."""
    by_id = addresses_of(route, broker_name)
    return [by_id[number] for number in sorted(by_id)]


def any_broker(route: bodies.TopicRouteData) -> str | None:
    """Return the address of some broker in the route, a master if there is one."""
    return next(iter(all_brokers(route)), None)


def all_brokers(route: bodies.TopicRouteData) -> list[str]:
    """Return the addresses of all brokers in the route, masters first."""
    numbered = [place for broker in route.broker_datas for place in broker.broker_addrs.items()]
    masters = [address for number, address in numbered if number == MASTER_ID]
    return masters + [address for number, address in numbered if number != MASTER_ID]
