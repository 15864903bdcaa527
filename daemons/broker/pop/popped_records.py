"""The records sent to a group that pops (5.x)."""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pop.popper import PopBatch
from mq.daemons.broker.pop.request import PopRequest
from mq.daemons.broker.pull.queue_reader import QueueReader
from mq.protocol.errors import LocalProtocolError
from mq.protocol.message import decode_undamaged, encode_record
from mq.protocol.pop_receipt import RETRY_MARK, Receipt
from mq.protocol.properties import PropertyKey


class PoppedRecords:
    """Reads the records of batches, and counts them after they have been sent."""

    def __init__(self, settings: BrokerSettings, reader: QueueReader) -> None:
        self._settings = settings
        self._reader = reader

    async def read(
        self,
        request: PopRequest,
        batch: PopBatch,
        pop_time: int,
        invisible_time: int,
        revive_queue: int,
    ) -> bytes:
        """Return the records of a batch. A retry is sent as a message of the requested topic, with
        its receipt in a property (popResponseReturnActualRetryTopic=false).
        """
        body = await self._reader.read(batch.found)
        if batch.queue.topic == request.topic:
            return body
        records = []
        messages, _ = decode_undamaged(body, decompress=False)
        for message in messages:
            receipt = Receipt(
                batch.offsets[0],
                pop_time,
                invisible_time,
                revive_queue,
                RETRY_MARK,
                self._settings.broker.broker_name,
                batch.queue.queue_id,
                message.queue_offset,
            )
            message.topic = request.topic
            message.properties.setdefault(PropertyKey.POP_CHECKPOINT, receipt.encode())
            try:
                records.append(encode_record(message))
            except LocalProtocolError:
                # The receipt does not fit. Clients then make one from the header, as for any
                # message, which requires the topic in which the message is stored.
                message.topic = batch.queue.topic
                del message.properties[PropertyKey.POP_CHECKPOINT]
                records.append(encode_record(message))
        return b"".join(records)

    def count(self, request: PopRequest, batch: PopBatch) -> None:
        """Count a batch as read by its group."""
        self._reader.count(batch.queue.topic, request.group, batch.queue.queue_id, batch.found)
