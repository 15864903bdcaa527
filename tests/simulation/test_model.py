"""The model notices what must not be: each check fails on a history that is wrong."""

from collections.abc import Callable

from tests.simulation.model import Found, Group, Model, Place, Sent
from tests.simulation.model.content import tag_of
from tests.simulation.model.due import check_due
from tests.simulation.model.registers import Registers

_QUEUE = ("Steps", "broker-a", 0)


def _group(problems: list[str], *, is_orderly: bool, broker_since: float) -> Group:
    group = Group("walkers", "Steps", problems.append, mode="ordered")
    group.is_orderly = lambda: is_orderly
    group.locks_since = lambda _: broker_since
    return group


def test_two_members_have_a_queue_at_once_only_while_its_broker_may_have_forgotten_the_lock() -> (
    None
):
    # Seconds from the start of the broker to the first; whether all was orderly; is it wrong?
    for since, is_orderly, is_wrong in (
        (0.5, True, False), (1.5, True, True), (1.5, False, False), (31.0, False, True)
    ):  # fmt: skip
        problems: list[str] = []
        group = _group(problems, is_orderly=is_orderly, broker_since=100.0)
        group.begins("walkers-0", 1, _QUEUE, 0, 100.0 + since)
        group.begins("walkers-1", 1, _QUEUE, 0, 100.2 + since)
        assert bool(problems) is is_wrong, (since, is_orderly)


def test_a_member_that_died_or_was_interrupted_has_no_queue_any_more() -> None:
    problems: list[str] = []
    group = _group(problems, is_orderly=True, broker_since=0.0)
    group.begins("walkers-0", 1, _QUEUE, 0, 100.0, is_alive=lambda: False)
    group.begins("walkers-1", 1, _QUEUE, 0, 100.1)
    group.abandons("walkers-1", 1, _QUEUE, 0)
    group.begins("walkers-2", 1, _QUEUE, 0, 100.2)
    assert not problems


def _stored(
    kind: str, places: list[Place], tries: int, *, is_orderly: bool, starts: int = 1
) -> list[str]:
    model = Model()
    model.is_orderly, model.starts = is_orderly, {"broker-a": starts}
    model.begin(Sent(1, "Steps", 5.0, tries, kind, decided="commit"))
    model.check_stored(Found(dict.fromkeys(places, 1)))
    return model.problems


def test_who_stops_in_order_leaves_one_copy_of_what_was_tried_again() -> None:
    twice = [Place(*_QUEUE, 0), Place(*_QUEUE, 1)]
    assert not _stored("single", twice, 2, is_orderly=False)
    assert _stored("single", twice, 2, is_orderly=True)
    assert _stored("level", twice, 2, is_orderly=True, starts=3)


def test_a_message_may_be_missing_only_where_a_broker_that_deletes_has_deleted() -> None:
    place = Place(*_QUEUE, 4)
    # Whether the broker keeps all, and where its queue begins; is it wrong?
    for keeps, minimum, is_wrong in (
        (False, 5, False), (False, 4, True), (False, 0, True), (True, 5, True)
    ):  # fmt: skip
        model = Model()
        model.keeps = keeps
        model.begin(Sent(1, "Steps", 5.0, places=[place]))
        model.check_stored(Found(minimums={_QUEUE: minimum}))
        assert bool(model.problems) is is_wrong, (keeps, minimum)


def test_a_transaction_is_visible_once_at_each_broker_that_has_its_half() -> None:
    first = Place(*_QUEUE, 0)
    assert not _stored(
        "transaction", [first, Place("Steps", "broker-b", 0, 0)], 2, is_orderly=False
    )
    assert _stored("transaction", [first, Place(*_QUEUE, 1)], 2, is_orderly=False, starts=9)


def _due(change: Callable[[Model, Group], None], tags: tuple[str, ...] = ()) -> list[str]:
    """A message that was stored at 5.0, and what of it is wrong at the end."""
    model, place = Model(), Place(*_QUEUE, 0)
    group = Group("lone", "Steps", model.wrong, tags=tags, is_alone=True)
    model.groups["lone"] = group
    model.begin(Sent(1, "Steps", 5.0, places=[place]))
    model.is_orderly = True
    change(model, group)
    found = Found({place: 1})
    found.numbers.update(
        {Place(*_QUEUE, n - 1): n for n in model.sent if n > 1}  # further ones, in order
    )
    check_due(model, found, {}, set(), {}, is_calm=False)
    return model.problems


def _have(group: Group, number: int, offset: int, *times: float) -> None:
    for at in times:
        group.begins("lone-0", number, _QUEUE, offset, at)
        group.ends("lone-0", number, _QUEUE, offset, well=True)


def test_a_stop_brings_again_only_what_was_not_committed_yet() -> None:
    def long_before(model: Model, group: Group) -> None:
        model.stops = [(20.0, 21.0)]
        _have(group, 1, 0, 6.0, 22.0)

    def just_before(model: Model, group: Group) -> None:
        model.stops = [(7.0, 8.0)]
        _have(group, 1, 0, 6.0, 9.0)

    assert any("too often" in problem for problem in _due(long_before))
    assert not _due(just_before)


def test_what_was_lost_later_does_not_take_the_excuse_of_an_earlier_loss() -> None:
    # As below; later the group had message 200, at offset 5, which is not there any more either.
    def change(model: Model, group: Group) -> None:
        model.is_orderly = False
        model.losses["broker-a"] += [4.0, 20.0]
        model.begin(Sent(2, "Steps", 8.0))
        _have(group, 9, 1, 3.0)
        _have(group, 2, 1, 9.0)
        model.begin(Sent(200, "Steps", 12.0))
        _have(group, 200, 5, 13.0)

    assert not _due(change)


def test_a_lost_end_excuses_nothing_that_was_stored_before_the_loss() -> None:
    # At offset 1 the group had message 9, which was lost; message 1, at 0, was not.
    def history(lost_at: float) -> Callable[[Model, Group], None]:
        def change(model: Model, group: Group) -> None:
            model.is_orderly = False
            model.losses["broker-a"].append(lost_at)
            model.begin(Sent(2, "Steps", 8.0))
            _have(group, 9, 1, 3.0)
            _have(group, 2, 1, 9.0)

        return change

    assert not _due(history(lost_at=4.0))
    assert any("message 1 " in problem for problem in _due(history(lost_at=6.0)))


def test_a_lost_end_excuses_only_what_came_before_the_group_was_back() -> None:
    # At offset 1 the group had message 9, which was lost; message 2 has that offset now.
    def history(came_back: float) -> Callable[[Model, Group], None]:
        def change(model: Model, group: Group) -> None:
            model.is_orderly = False
            model.losses["broker-a"].append(4.0)
            model.begin(Sent(2, "Steps", 8.0))
            _have(group, 9, 1, 3.0)
            _have(group, 2, 1, came_back)

        return change

    assert not _due(history(came_back=9.0))
    assert any("was not finished" in problem for problem in _due(history(came_back=7.0)))


def test_a_lost_end_excuses_what_a_group_passed_for_its_tag_only_while_it_stays_behind() -> None:
    # Message 4 has offset 3. What was lost there had another tag: the group passed it unseen.
    def history(*pulls_from: tuple[float, int]) -> Callable[[Model, Group], None]:
        def change(model: Model, group: Group) -> None:
            model.is_orderly = False
            model.losses["broker-a"].append(5.5)
            model.begin(Sent(4, "Steps", 8.0))
            _have(group, 1, 0, 5.1)
            for at, offset in pulls_from:
                group.positions["lone-0"] = lambda: [(_QUEUE, offset)]  # noqa: B023
                group.look(at)

        return change

    wanted = (tag_of(1),)
    assert tag_of(4) in wanted
    assert not _due(history((5.2, 4)), wanted)
    assert _due(history((5.2, 4)))  # it wants all
    wrong = [(), ((5.2, 3),), ((8.5, 4),), ((5.2, 4), (7.0, 3)), ((5.2, 4), (7.0, 3), (9.0, 4))]
    for seen in wrong:
        assert any("was not finished" in problem for problem in _due(history(*seen), wanted)), seen


def test_a_log_that_has_changed_loses_its_end_at_the_start_behind_a_crash() -> None:
    # At offset 1 the group had message 9, which was put aside; message 2 has that offset now.
    def history(crashed: float, came_back: float) -> Callable[[Model, Group], None]:
        def change(model: Model, group: Group) -> None:
            model.is_orderly = False
            model.rots("broker-a", 2.0)
            model.crashes["broker-a"] = [1.0, crashed]
            model.begin(Sent(2, "Steps", 8.0))
            model.begin(Sent(3, "Steps", 8.5))
            _have(group, 1, 0, 3.0)
            _have(group, 9, 1, 3.0)
            _have(group, 3, 2, came_back)

        return change

    assert not _due(history(crashed=7.0, came_back=9.0))
    for crashed, came_back in ((7.0, 7.9), (1.5, 9.0), (8.2, 9.0)):
        wrong = _due(history(crashed, came_back))
        assert any("was not finished" in problem for problem in wrong), (crashed, came_back)


def test_what_waited_has_its_offset_from_when_it_was_stored() -> None:
    # At offset 1 the group had message 9, which was lost; 2, which was sent before, came there.
    for came_back, is_wrong in ((9.0, False), (7.5, True)):
        model, group = Model(), Group("lone", "Steps", print)
        model.groups["lone"] = group
        model.losses["broker-a"].append(6.0)
        for number, at in ((1, 2.0), (2, 3.0), (3, 7.0)):
            model.begin(Sent(number, "Steps", at))
        _have(group, 1, 0, 3.0)
        _have(group, 9, 1, 4.0)
        _have(group, 3, 2, came_back)
        places = [Place(*_QUEUE, offset) for offset in range(3)]
        found = Found(dict(zip(places, (1, 2, 3), strict=True)), stored={places[1]: 8.0})
        check_due(model, found, {}, set(), {}, is_calm=False)
        assert bool(model.problems) is is_wrong, came_back


def test_what_was_being_set_by_one_that_was_killed_may_be_there_and_nothing_else() -> None:
    problems: list[str] = []
    registers, key = Registers(problems.append), ("key", "namesrv-1", "C")

    def is_wrong(value: str) -> bool:
        problems.clear()
        registers.check(key, value)
        return bool(problems)

    registers.begin(key, "4")
    registers.acknowledged(key, "4")
    registers.begin(key, "8")
    assert [is_wrong(value) for value in ("4", "8", "6")] == [False, False, True]
    registers.abandoned()
    assert [is_wrong(value) for value in ("4", "8", "6")] == [False, False, True]
    registers.begin(key, "5")
    registers.acknowledged(key, "5")  # settled: a write without a waiting client blocks nothing
    assert [is_wrong(value) for value in ("5", "8", "4")] == [False, False, True]


def test_what_a_sync_master_has_acknowledged_is_there_when_a_slave_has_its_place() -> None:
    place = Place(*_QUEUE, 0)
    # Whether what was acknowledged is kept, and whether no slave had it; is it wrong?
    for is_kept, is_unreplicated, is_wrong in (
        (True, False, True), (True, True, False), (False, False, False)
    ):  # fmt: skip
        model = Model()
        sent = model.begin(Sent(1, "Steps", 5.0))
        model.acknowledged(sent, place, 5.1)
        if is_unreplicated:
            sent.unreplicated.append(place)
        model.may_be_lost("broker-a", 4.0, 9.0, keeps_acknowledged=is_kept)
        model.fails_over("broker-a", 0.0, 9.0)
        model.check_stored(Found())
        assert bool(model.problems) is is_wrong, (is_kept, is_unreplicated)


def test_what_a_group_was_given_is_there_unless_its_broker_has_lost_its_end() -> None:
    for loses, is_wrong in ((False, True), (True, False)):
        model = Model()
        group = model.groups["walkers"] = _group(model.problems, is_orderly=False, broker_since=0.0)
        model.begin(Sent(1, "Steps", 5.0))
        group.begins("walkers-0", 1, _QUEUE, 0, 5.1)
        if loses:
            model.may_be_lost("broker-a", 6.0, 6.0, keeps_acknowledged=True)
        check_due(model, Found(), {}, set(), {}, is_calm=False)
        assert bool(model.problems) is is_wrong


def test_what_was_set_before_the_last_copies_is_known_when_a_slave_has_its_masters_place() -> None:
    key = ("topic", "broker-a", "A")
    for since, is_wrong in ((10.0, True), (4.0, False)):
        problems: list[str] = []
        registers = Registers(problems.append)
        registers.begin(key, 3)
        registers.acknowledged(key, 3, 5.0)
        registers.forget("broker-a", since)
        for known in registers.keys():
            registers.check(known, None)
        assert bool(problems) is is_wrong
