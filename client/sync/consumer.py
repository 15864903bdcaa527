"""Blocking consumers."""

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Unpack, cast

from mq.client.consumer import consumer, lite_pull_consumer
from mq.client.consumer.options import ConsumeKeywords, ConsumeOptions, PollKeywords, PollOptions
from mq.client.errors import ClientError
from mq.client.options import ClientOptions
from mq.client.sync.session import Blocking, Session, at_once, own_options, waiting
from mq.client.transport.session import Session as AsyncSession
from mq.protocol.message import StoredMessage

T = TypeVar("T")


class Consumer(Blocking[consumer.Consumer]):
    """A member of a consumer group. A context manager.

        with Consumer("127.0.0.1:9876", "billing", {"Orders": "paid"}) as consumer:
            for message in consumer:
                ...

    A loop has finished a message when it asks for the next one. If a loop is left early, its last
    message is delivered to the next loop. Alternatively messages are passed to a `listener`, a
    plain function that is called in threads, while the program blocks in `wait_closed`. Ctrl-C ends
    both. See `mq.client.Consumer` for everything else.
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        options: ConsumeOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ConsumeKeywords],
    ) -> None:
        """`session` is the addresses of name servers, or a blocking session to share.

        Options are those of `mq.client.Consumer`; `open` raises the errors about them.
        """
        given = cast("dict[str, Any]", keywords)
        client = own_options(session, client, given)

        def make(shared: AsyncSession) -> consumer.Consumer:
            return consumer.Consumer(
                shared, group, subscriptions, options, client=client, **keywords
            )

        super().__init__(session, make, client)

    def __iter__(self) -> Iterator[StoredMessage]:
        """Yield messages until the consumer is closed. Several threads may iterate concurrently."""
        made = self._client
        messages = aiter(made)

        async def following() -> StoredMessage | None:
            return await anext(messages, None)

        try:
            while (message := self._unless_closed(made, following())) is not None:
                yield message
        finally:
            self._unless_closed(made, messages.aclose())  # type: ignore[attr-defined]

    def _unless_closed(
        self, made: consumer.Consumer, coroutine: Coroutine[Any, Any, T]
    ) -> T | None:
        """Return the result of a coroutine; None if another thread has closed the consumer, and its
        loop, meanwhile.
        """
        try:
            return self._run(coroutine)
        except ClientError:
            if self._made is made:
                raise
            return None

    retry_later = waiting(consumer.Consumer.retry_later)
    commit = waiting(consumer.Consumer.commit)
    wait_closed = waiting(consumer.Consumer.wait_closed)
    pause = at_once(consumer.Consumer.pause)
    resume = at_once(consumer.Consumer.resume)


class LitePullConsumer(Blocking[lite_pull_consumer.LitePullConsumer]):
    """Polls for messages. A context manager.

        with LitePullConsumer("127.0.0.1:9876", "reports", {"Orders": "*"}) as consumer:
            for message in consumer.poll(timeout=5):
                ...

    Messages returned by `poll` count as consumed at the next `poll`, at `commit`, and when the
    block is left without an error. See `mq.client.LitePullConsumer` for everything else.
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str] | None = None,
        options: PollOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[PollKeywords],
    ) -> None:
        """See `Consumer`."""
        given = cast("dict[str, Any]", keywords)
        client = own_options(session, client, given)

        def make(shared: AsyncSession) -> lite_pull_consumer.LitePullConsumer:
            return lite_pull_consumer.LitePullConsumer(
                shared, group, subscriptions, options, client=client, **keywords
            )

        super().__init__(session, make, client)

    def __exit__(self, *exc: object) -> None:
        made = self._made
        try:
            if made is not None:
                self._run(made.__aexit__(*exc))
        finally:
            self.close()

    poll = waiting(lite_pull_consumer.LitePullConsumer.poll)
    assign = waiting(lite_pull_consumer.LitePullConsumer.assign)
    queues = waiting(lite_pull_consumer.LitePullConsumer.queues)
    seek = waiting(lite_pull_consumer.LitePullConsumer.seek)
    seek_to_begin = waiting(lite_pull_consumer.LitePullConsumer.seek_to_begin)
    seek_to_end = waiting(lite_pull_consumer.LitePullConsumer.seek_to_end)
    commit = waiting(lite_pull_consumer.LitePullConsumer.commit)
    committed = waiting(lite_pull_consumer.LitePullConsumer.committed)
    offset_at = waiting(lite_pull_consumer.LitePullConsumer.offset_at)
    pause = at_once(lite_pull_consumer.LitePullConsumer.pause)
    resume = at_once(lite_pull_consumer.LitePullConsumer.resume)
