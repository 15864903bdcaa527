"""Parses expressions of requests outside of the event loop.

Parsing takes 15 us per character. A request whose expression is not parsed yet raises NotReady; the
dispatcher calls its handler again once a thread has parsed the expression. One is parsed at a time,
and after each, other work has the interpreter for longer than parsing took (`OneAtATime`).
"""

import asyncio
from collections.abc import Iterable

from mq.daemons.broker.filters.sql92 import Read, Sql92Filter, finish, known_filter, parse, valid
from mq.daemons.channel import Channel, NotReady
from mq.daemons.time_slices import OneAtATime


class FilterReader:
    """The expressions in requests."""

    def __init__(self) -> None:
        self._turns = OneAtATime()

    def filter(self, text: str) -> Sql92Filter:
        """The filter of an expression.

        Raises:
            NotReady: it must be parsed first.
            FilterSyntaxError: it is invalid.
        """
        known = known_filter(text)
        if known is None:
            raise self._not_ready([text])
        return valid(known)

    def need(self, texts: Iterable[str]) -> None:
        """Raises NotReady if one of these must be parsed first."""
        if unknown := [text for text in texts if known_filter(text) is None]:
            raise self._not_ready(unknown)

    def _not_ready(self, texts: list[str]) -> NotReady:
        async def prepare(channel: Channel) -> list[Read]:
            # The list keeps the parsed filters alive until the handler has been called again.
            return [await self._read(text, channel) for text in texts]

        return NotReady(prepare)

    async def _read(self, text: str, channel: Channel) -> Read:
        if (known := known_filter(text)) is not None:
            return known
        async with self._turns.turn(channel):
            if (known := known_filter(text)) is not None:
                return known
            return finish(text, await asyncio.to_thread(parse, text))
