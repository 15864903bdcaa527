"""Messages for tests."""

import asyncio
from collections.abc import Sequence

from mq.client.tube.producer import TubeProducer

Sent = list[tuple[str, int, int]]  # partition key, offset and id of each message


def fill(
    master: str,
    topic: str,
    bodies: Sequence[bytes],
    partition: int | None = None,
    kind: str | None = None,
) -> Sent:
    """Send bodies in order, to a partition or to each in turn, with a message type."""

    async def work() -> Sent:
        async with TubeProducer(master, [topic]) as producer:
            partitions = sorted(producer.partitions(topic))
            chosen = partitions if partition is None else [partitions[partition]]
            results = [
                producer.submit(
                    topic,
                    body,
                    partition=chosen[n % len(chosen)],
                    message_type=kind,
                    message_time="202601310800" if kind else None,
                    attributes={"n": str(n)} if kind else None,
                )
                for n, body in enumerate(bodies)
            ]
            sent = await asyncio.gather(*results)
        return [(str(one.partition.key), one.append_offset or 0, one.message_id) for one in sent]

    return asyncio.run(work())
