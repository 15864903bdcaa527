"""Programs without a loop of their own, against daemons that are processes."""

import asyncio
import inspect
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from mq.client import admin as asynchronous
from mq.client.errors import ClientError, ConnectError, MQError
from mq.client.producer.transactions import TransactionCheck, TransactionState
from mq.client.sync import (
    Admin,
    Consumer,
    LitePullConsumer,
    Producer,
    Session,
    TransactionProducer,
)
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue, TopicConfig
from mq.protocol.message import Message, StoredMessage
from tests.cli.pairs import running_pair

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with running_pair() as pair:
        yield pair.name_server_address


def make_topic(name_server: str, topic: str, queues: int = 2) -> None:
    with Admin(name_server) as admin:
        (broker,) = admin.cluster_info().broker_addr_table.values()
        config = TopicConfig(
            topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        admin.create_topic(broker.broker_addrs[0], config)
        assert topic in admin.topic_list().topic_list


def test_what_threads_send_side_by_side_comes_once_to_a_loop(name_server: str) -> None:
    make_topic(name_server, "Sync")
    with Producer(name_server, "sync") as producer:

        def send(part: int) -> None:
            for number in range(25):
                producer.send(Message("Sync", b"%d-%d" % (part, number)))

        threads = [threading.Thread(target=send, args=(part,)) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seen = []
    with Consumer(name_server, "sync", {"Sync": "*"}, consume_from=FIRST) as consumer:
        for message in consumer:
            seen.append(message.body)
            if len(seen) == 100:
                break
        consumer.commit()
    assert sorted(seen) == sorted(b"%d-%d" % (p, n) for p in range(4) for n in range(25))


def test_a_message_at_which_a_loop_is_left_comes_in_the_next(name_server: str) -> None:
    make_topic(name_server, "SyncLeft", 1)
    with Session(name_server) as session:
        with Producer(session, "left") as producer:
            for number in range(3):
                producer.send(Message("SyncLeft", b"%d" % number))
        with Consumer(session, "left", {"SyncLeft": "*"}, consume_from=FIRST) as consumer:
            first = next(iter(consumer))
            again = []
            for message in consumer:
                again.append(message.body)
                if len(again) == 3:
                    break
        assert first.body == b"0"
        assert sorted(again) == [b"0", b"1", b"2"]
        with Admin(session) as admin:  # the session stays open
            assert "SyncLeft" in admin.topic_list().topic_list


def test_a_listener_is_called_in_a_thread_and_may_send(name_server: str) -> None:
    make_topic(name_server, "SyncHeard")
    make_topic(name_server, "SyncAnswers")
    threads, heard = set(), threading.Event()
    with Session(name_server) as session, Producer(session, "heard") as producer:

        def listener(message: StoredMessage) -> None:
            threads.add(threading.current_thread())
            producer.send(Message("SyncAnswers", message.body))
            heard.set()

        with Consumer(
            session, "heard", {"SyncHeard": "*"}, listener=listener, consume_from=FIRST
        ) as consumer:
            producer.send(Message("SyncHeard", b"x"))
            assert heard.wait(30)
            consumer.pause()
            consumer.resume()
    assert threading.main_thread() not in threads


def test_polled_messages_are_committed_when_the_block_is_left(name_server: str) -> None:
    make_topic(name_server, "SyncPolled", 1)
    with Producer(name_server) as producer:
        sent = producer.send(Message("SyncPolled", b"a"))
    queue = MessageQueue("SyncPolled", sent.queue.broker_name, 0)
    for body in (b"a", b"b"):
        with LitePullConsumer(
            name_server, "polled", {"SyncPolled": "*"}, consume_from=FIRST
        ) as consumer:
            found: list[StoredMessage] = []
            while not found:
                found = consumer.poll(timeout=30)
            assert [one.body for one in found] == [body]
        with Producer(name_server) as producer:
            producer.send(Message("SyncPolled", b"b"))
    with LitePullConsumer(name_server, "polled") as consumer:
        assert consumer.committed(queue) == 2


def test_a_transaction_does_its_work_in_a_thread(name_server: str) -> None:
    make_topic(name_server, "SyncPaid")
    where = []

    def check(question: TransactionCheck) -> TransactionState:
        return TransactionState.UNKNOWN

    def pay(message: Message) -> TransactionState:
        where.append(threading.current_thread())
        return TransactionState.COMMIT

    with TransactionProducer(name_server, "payments", check) as producer:
        result = producer.send_in_transaction(Message("SyncPaid", b"42"), pay)
    assert result.state is TransactionState.COMMIT
    assert where and where[0] is not threading.main_thread()


def test_all_that_the_admin_of_a_loop_can_do_the_blocking_one_can() -> None:
    wanted = {
        name
        for name, _ in inspect.getmembers(asynchronous.Admin, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert len(wanted) > 90
    assert wanted <= set(vars(Admin))


def test_clients_that_cannot_work_say_why(name_server: str) -> None:
    producer = Producer(name_server)
    with pytest.raises(ClientError, match="not open"):
        producer.send(Message("Sync", b"x"))
    with pytest.raises(ConnectError), Admin("127.0.0.1:1") as admin:
        admin.topic_list()
    with pytest.raises(TypeError, match="no_such_option"), Producer(name_server, no_such_option=1):  # type: ignore[call-arg]
        pass
    with Session(name_server) as session:

        async def within() -> None:
            session.run(session.asynchronous.open())

        with pytest.raises(ClientError, match="wait for itself"):
            session.run(within())
    with pytest.raises(ClientError, match="closed"):
        session.run(within())
    assert not [one for one in threading.enumerate() if one.name == "mq-client"]


def test_ctrl_c_ends_a_loop_that_waits_for_messages(name_server: str) -> None:
    make_topic(name_server, "SyncEmpty")
    with Consumer(name_server, "waiting", {"SyncEmpty": "*"}) as consumer:
        later = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        later.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in consumer:
                pass
        later.join()


class Slow:
    """Offsets that it takes a moment to commit."""

    def __init__(self) -> None:
        self.offsets: dict[MessageQueue, int] = {}
        self.begun = threading.Event()
        self.committed_all = 0

    async def committed(self, queue: MessageQueue) -> int | None:
        return None

    def update(self, queue: MessageQueue, offset: int) -> None:
        self.offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None: ...

    async def commit(self, queues: Iterable[MessageQueue], *, again: bool = False) -> list[MQError]:
        self.begun.set()
        await asyncio.sleep(0.3)
        self.committed_all = sum(self.offsets.values())
        return []


def test_what_a_loop_has_finished_is_committed_where_another_thread_closes_its_consumer(
    name_server: str,
) -> None:
    """The loop ended and its block was left while another thread closed the session."""
    make_topic(name_server, "SyncClosed")
    with Producer(name_server) as producer:
        for number in range(3):
            producer.send(Message("SyncClosed", b"%d" % number))
    store = Slow()
    consumer = Consumer(
        name_server, "closed", {"SyncClosed": "*"}, consume_from=FIRST, offsets=store
    )
    with consumer:
        closing = None
        for number, _ in enumerate(consumer):
            if number == 2:
                later = threading.Timer(0.3, consumer.close)
                later.start()
                closing = later
    assert store.committed_all == 3
    assert closing is not None
    closing.join()


def test_a_consumer_reopened_while_another_thread_closes_it_is_open_afterwards(
    name_server: str,
) -> None:
    """A regression: the consumer was refused as a second member of its group, and the close was cut
    short.
    """
    make_topic(name_server, "SyncAgain", 1)
    with Producer(name_server) as producer:
        producer.send(Message("SyncAgain", b"x"))
    store = Slow()
    consumer = Consumer(name_server, "again", {"SyncAgain": "*"}, consume_from=FIRST, offsets=store)
    consumer.open()
    loop = iter(consumer)
    next(loop)
    closing = threading.Thread(target=consumer.close)
    closing.start()
    assert store.begun.wait(30)
    with consumer:
        closing.join()
        assert next(iter(consumer)).body == b"x"
    loop.close()  # type: ignore[attr-defined]


def test_a_client_that_several_threads_open_at_once_is_opened_once(name_server: str) -> None:
    """A regression: all but the first open were refused, and closed the session of the first."""
    make_topic(name_server, "SyncOpens", 1)
    producer = Producer(name_server)
    failures: list[BaseException] = []

    def send() -> None:
        try:
            producer.open()
            producer.send(Message("SyncOpens", b"x"))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.close()
    assert not failures


def test_a_loop_ends_where_another_thread_has_closed_its_consumer_meanwhile(
    name_server: str,
) -> None:
    make_topic(name_server, "SyncInside", 1)
    with Producer(name_server) as producer:
        for _ in range(2):
            producer.send(Message("SyncInside", b"x"))
    seen = 0
    with Consumer(name_server, "inside", {"SyncInside": "*"}, consume_from=FIRST) as consumer:
        for _ in consumer:
            seen += 1
            closing = threading.Thread(target=consumer.close)
            closing.start()
            closing.join()
    assert seen == 1


def test_closing_a_client_in_the_thread_of_its_loop_is_an_error(
    name_server: str,
) -> None:
    """A regression: the loop waited for itself forever, and the consumer kept its queues."""
    make_topic(name_server, "SyncSelf", 1)
    errors: list[ClientError] = []
    heard = threading.Event()

    async def listener(message: StoredMessage) -> None:
        for client in (consumer, session):
            try:
                client.close()
            except ClientError as error:
                errors.append(error)
        heard.set()

    with Session(name_server) as session:
        with Producer(session) as producer:
            producer.send(Message("SyncSelf", b"x"))
        with Consumer(
            session, "self", {"SyncSelf": "*"}, listener=listener, consume_from=FIRST
        ) as consumer:
            assert heard.wait(30)
    assert ["wait for itself" in str(error) for error in errors] == [True, True]


def test_a_client_does_not_outlive_a_fork(name_server: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    later = Producer(name_server)
    with Producer(name_server) as producer:
        child = os.fork()
        if not child:
            try:
                with pytest.raises(ClientError, match="cannot be used after a fork"):
                    producer.send(Message("Sync", b"x"))
                with pytest.raises(ClientError, match="cannot be used after a fork"):
                    later.open()
                # After a fork only the forking thread exists: no code would end the thread of such
                # a loop.
                told.write_text(f"{threading.active_count()} thread")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    assert told.read_text() == "1 thread"
