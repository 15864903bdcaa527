"""The pages about found messages: their contents and the groups that consumed them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mq.cli.runtime.call import Call
from mq.cli.show import bodies, message_text
from mq.cli.show.lazy import LongText, Mapped, pieces_of
from mq.cli.show.output import Format
from mq.cli.show.result import Result
from mq.client.operations.columns import nested
from mq.client.operations.messages.unpacking import Unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mq.client.admin import Admin
    from mq.client.operations.messages.track import Track
    from mq.protocol.message import StoredMessage

DETAILS = (
    *message_text.DOCUMENT,
    nested("consumers", "how each consumer group handled it: group, type, error"),
)


async def details(
    call: Call,
    admin: "Admin",
    messages: Unpacked,
    *,
    offset_id: bool,
    extra: dict[str, str] | None = None,
    shown: int | None = None,
    charset: str | None = None,
) -> Result:
    """Return the pages about messages: their contents and the groups that consumed them.

    `shown` limits how many of them plain prints, as mqadmin does.
    """
    from mq.client.operations.messages.track import tracks

    pages: list[_Page] = []
    for index in range(len(messages)):
        message = messages[index]
        page = _Page(await tracks(admin, message))
        if call.output is Format.PLAIN and (shown is None or index < shown):
            suffix = f"_{index}" if index and not offset_id else ""
            path = message_text.write_body(call.environment, message, suffix)
            page.text = message_text.detail(message, path, offset_id=offset_id, extra=extra)
        pages.append(page)
        del message  # before the next one is decompressed

    def plain() -> "Iterator[str]":
        for index, page in enumerate(pages):
            yield from page.plain(messages, index, charset)

    rows = Mapped(message_text.row, messages)
    data = Mapped(lambda index: pages[index].document(messages[index]), range(len(pages)))
    return Result(message_text.COLUMNS, rows, LongText(plain), data=data, messages=messages)


@dataclass
class _Page:
    """Data about a message besides its contents; `text` is its page, if plain prints it."""

    found: "list[Track]"
    text: str = ""

    def document(self, message: "StoredMessage") -> dict[str, Any]:
        from mq.cli.messages import track_text

        return {**message_text.document(message), "consumers": track_text.documents(self.found)}

    def plain(self, messages: Unpacked, index: int, charset: str | None) -> "Iterator[str]":
        """Yield the page, with the body if a character set is given."""
        from mq.cli.messages import track_text

        if not self.text:
            return
        yield self.text
        if charset is not None:
            yield f"{'Message Body:':<20} "
            yield from pieces_of(bodies.decoded(messages[index].body, charset))
            yield "\n"
        yield track_text.text(self.found)
