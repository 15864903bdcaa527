"""The model of TubeMQ finds what is wrong in a history, and nothing in one that is right."""

from mq.client.tube import TubeBatch, TubeMessage
from mq.client.tube.producer import TubeSendResult
from mq.protocol.tube.strings import BrokerInfo, Partition
from tests.simulation.tube.model import Group, Key, Model, Sent, Stored

KEY: Key = (1, "Orders", 0)
PARTITION = Partition(BrokerInfo(1, "10.0.0.2", 8123), "Orders", 0)


class History:
    """Messages of one partition, sent in sequence, and a group."""

    def __init__(self, count: int) -> None:
        self.now = 0.0
        self.model = Model(lambda: self.now)
        self.group = self.model.groups["billing"] = Group("billing", "Orders", ("paid",))
        self.sent = [self.send() for _ in range(count)]
        self.content = [Stored(28 * one.number, one.number) for one in self.sent]

    def send(self) -> Sent:
        self.now += 1.0
        sent = self.model.sends("Orders", "paid", b"x")
        result = TubeSendResult(1, PARTITION, 0, 28 * sent.number)
        self.model.acknowledged(sent, result)
        return sent

    def give(self, *sent: Sent, confirmed: bool = True) -> None:
        messages = [TubeMessage("Orders", one.body, 1, 0, "") for one in sent]
        batch = TubeBatch(messages, "Orders", "1:Orders:0", "", 0, 0)
        numbers = self.model.given(self.group, batch)
        if confirmed:
            self.group.asked.update(numbers)

    def problems(self, content: list[Stored] | None = None, committed: int = 0) -> str:
        content = self.content if content is None else content
        self.model.committed(self.group, KEY, committed, content)
        self.model.check({KEY: content})
        return "; ".join(self.model.problems)


def test_nothing_is_wrong_where_all_is_there_and_given() -> None:
    history = History(3)
    history.give(*history.sent)
    assert history.problems(committed=84) == ""


def test_a_message_that_is_not_there_is_missed_unless_a_power_cut_may_have_taken_it() -> None:
    history = History(2)
    history.give(*history.sent)
    assert "message 1 was acknowledged at 28" in history.problems(history.content[:1])
    excused = History(2)
    excused.give(*excused.sent)
    excused.model.may_be_lost(1, 1.5, 3.0)
    assert excused.problems(excused.content[:1]) == ""
    assert "message 0 was acknowledged" in excused.problems([Stored(0, 1)])


def test_a_message_whose_answer_was_under_way_at_a_power_cut_may_be_gone() -> None:
    history = History(1)
    sent = history.model.sends("Orders", "paid", b"x")
    history.model.may_be_lost(1, 0.0, 2.0)
    history.now = 2.001
    history.model.acknowledged(sent, TubeSendResult(1, PARTITION, 0, 28))
    history.give(*history.sent, sent)
    assert history.problems(history.content) == ""


def test_a_message_that_is_there_twice_or_elsewhere_is_wrong() -> None:
    history = History(2)
    history.give(*history.sent)
    assert "message 0 is stored twice" in history.problems([*history.content, Stored(56, 0)])
    assert "and is at 0 of" in history.problems([Stored(0, 1), Stored(28, 0)])


def test_what_nobody_sent_is_wrong_where_it_is_stored_and_where_it_is_given() -> None:
    history = History(1)
    history.give(*history.sent)
    assert "what nobody sent there" in history.problems([*history.content, Stored(28, 7)])
    other = History(1)
    other.give(Sent(0, "Orders", b"0 y", "paid", 0.0))
    assert "was given what nobody sent" in other.problems()


def test_a_message_before_one_that_was_acknowledged_before_it_was_sent_is_out_of_order() -> None:
    history = History(2)
    history.give(*history.sent)
    assert "is stored before one that was sent before it" in history.problems(
        [Stored(0, 1), Stored(28, 0)]
    )


def test_messages_of_a_burst_are_in_its_order() -> None:
    history = History(0)
    first, second = (history.model.sends("Orders", "sent", b"", (1, place)) for place in (0, 1))
    right = [Stored(0, first.number), Stored(28, second.number)]
    assert history.problems(right) == ""
    wrong = [Stored(0, second.number), Stored(28, first.number)]
    assert "is stored before" in history.problems(wrong)


def test_a_group_is_not_farther_than_what_it_has_confirmed() -> None:
    history = History(2)
    history.give(history.sent[0])
    history.give(history.sent[1], confirmed=False)
    assert history.problems(committed=28) == ""
    assert "message 1 at 28 was given and not confirmed" in history.problems(committed=56)
    other = History(1)
    assert "message 0 at 0 was not given" in other.problems(committed=28)


def test_no_two_members_confirm_the_same_unless_their_broker_was_started_again() -> None:
    history = History(1)
    batch = TubeBatch([], "Orders", "1:Orders:0", "", 0, 0)
    history.model.confirmed(history.group, batch, 28, "one", 1)
    history.model.confirmed(history.group, batch, 28, "other", 2)
    assert not history.model.problems
    history.model.confirmed(history.group, batch, 28, "other", 1)
    assert "other has confirmed 0 of 1:Orders:0, which one had" in history.model.problems[0]
    history.model.given(history.group, batch, "other", 1)
    assert "other was given 0 of 1:Orders:0 again" in history.model.problems[1]


def test_a_group_that_was_not_given_all_that_it_wants_is_found() -> None:
    history = History(2)
    unwanted = history.model.sends("Orders", "sent", b"")
    history.give(history.sent[0])
    content = [*history.content, Stored(56, unwanted.number)]
    assert history.problems(content) == "billing was never given message 1"
