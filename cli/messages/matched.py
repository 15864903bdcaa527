"""Actions on found messages: one consumer consumes them, or they are sent again."""

from typing import TYPE_CHECKING

from mq.cli.runtime.call import Call
from mq.cli.show import java_text, message_text
from mq.cli.show.result import Result
from mq.client.operations.columns import number, text
from mq.client.operations.errors import BadData, NotFound
from mq.client.operations.messages.unpacking import Unpacked

if TYPE_CHECKING:
    from mq.client.admin import Admin
    from mq.protocol.message import StoredMessage

DIRECTLY = (
    text("offsetId", "Offset id"),
    text("group", "Consumer group"),
    text("clientId", "Consumer"),
    text("result", "Result"),
    text("remark", "Remark"),
    number("spentMillis", "Took (ms)"),
)
SENT_AGAIN = (
    text("originalOffsetId", "Original"),
    text("sendStatus", "Result"),
    text("messageId", "Message id"),
    number("queueOffset", "Offset"),
)


async def by_offset_id(admin: "Admin", message_id: str) -> "StoredMessage":
    """Return the message; its body stays compressed."""
    from mq.client.errors import ConnectError, NoneThere

    try:
        return await admin.find_by_offset_id(message_id, decompress=False)
    except NoneThere as error:
        raise NotFound(f"no message {message_id}: {error}") from error
    except ConnectError as error:
        hint = "a unique id has 32 digits too: mq queryMsgByUniqueKey -i ID -t TOPIC"
        raise NotFound(f"no broker for message {message_id}: {error}", hint=hint) from error


async def consume_directly(admin: "Admin", group: str, client_id: str, ids: list[str]) -> Result:
    """Let one consumer consume messages now (CONSUME_MESSAGE_DIRECTLY).

    With several messages an error of one is reported, and the others are consumed once.
    """
    from mq.client.errors import MQError
    from mq.client.operations.messages import resending

    plain, rows, failures = "", [], []
    for message_id in ids:
        try:
            message = await by_offset_id(admin, message_id)
            done = await resending.consume_directly(admin.session, message, group, client_id)
        except (NotFound, MQError) as error:
            if len(ids) == 1:
                raise
            failures.append(f"message {message_id}: {error}")
            continue
        result = done.consume_result.name if done.consume_result else "null"
        plain += (
            f"ConsumeMessageDirectlyResult [order={java_text.truth(done.order)}, "
            f"autoCommit={java_text.truth(done.auto_commit)}, consumeResult={result}, "
            f"remark={'null' if done.remark is None else done.remark}, "
            f"spentTimeMills={done.spent_time_mills}]"
        )
        rows.append((message_id, group, client_id, result, done.remark, done.spent_time_mills))
    return Result(DIRECTLY, list(rows), plain, failures=failures)


async def send_found(call: Call, ids: list[str], messages: Unpacked) -> Result:
    """Send found messages as new ones; they keep their properties, the unique id included.

    Unreadable bodies, and with several messages failed sends, are failures; the others are sent. A
    user who repeated the command after an error would send them twice.
    """
    from mq.client.errors import MQError
    from mq.client.operations.messages.resending import same_again
    from mq.client.producer.options import ANY_BODY

    plain, rows, failures = "", [], []
    async with call.producer("ReSendMsgById", max_body=ANY_BODY) as producer:
        for message_id, found in zip(ids, messages, strict=False):
            try:
                message = same_again(found)
            except BadData as error:
                failures.append(error.message)
                continue
            try:
                result = await producer.send(message)
            except MQError as error:
                if len(ids) == 1:
                    raise
                failures.append(f"message {message_id} is not sent again: {error}")
                continue
            described = message_text.send_result_text(result)
            plain += f"prepare resend msg. originalMsgId={message_id}{described}"
            rows.append((message_id, str(result.status), result.message_id, result.queue_offset))
    return Result(SENT_AGAIN, list(rows), plain, failures=failures)
