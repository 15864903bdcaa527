"""Final checks: messages delivered, moved from where they waited, committed, acknowledged."""

from itertools import chain
from math import inf

from tests.simulation.model.content import tag_of
from tests.simulation.model.groups import Group
from tests.simulation.model.messages import Found, Model, Place, Sent

# ms after its time, by the clock of its broker, until a message is put into its queue.
LATE = 5000.0
LATE_WHEN_CALM = 2000.0
# Seconds until offsets are committed (workloads/context.py), also those after a message in a
# listener, and until clients reach a restarted broker.
COMMITS = 4.5
COMES_BACK = 8.0
# Seconds from a send until its last attempt: the clients' timeout and a margin.
_TRIES_SECONDS = 4.0


def check_due(
    model: Model,
    found: Found,
    dead: dict[str, set[int]],
    given_up: set[int],
    clocks: dict[str, float],
    is_calm: bool,
) -> None:
    """``dead``: the dead letters of each group. ``given_up``: transactions that were checked too
    often. ``clocks``: the brokers' clocks, ms since 1970.
    """
    copies: dict[int, list[Place]] = {}
    for place, number in found.numbers.items():
        copies.setdefault(number, []).append(place)
    for sent in model.sent.values():
        here = copies.get(sent.number, [])
        if sent.kind in ("level", "timer") and sent.waits_at:
            if sent.waits_at in model.clocks_differ:
                continue
            _check_waiting(model, sent, here, found, clocks, is_calm)
        elif sent.kind == "transaction":
            _check_transaction(model, sent, here, sent.number in given_up)
    for name, group in model.groups.items():
        _check_group(model, group, found, dead.get(name, set()))
        _check_given(model, group, found)
    for pops in model.pops.values():
        stored = found.of_topic(pops.topic)

        def is_lost(number: int) -> bool:
            return any(model.lost_acknowledged(one.broker, 0.0) for one in stored[number])  # noqa: B023

        pops.check_all_done(list(stored), is_lost)


def _check_waiting(
    model: Model,
    sent: Sent,
    here: list[Place],
    found: Found,
    clocks: dict[str, float],
    is_calm: bool,
) -> None:
    what = f"message {sent.number} ({sent.kind} at {sent.waits_at})"
    for place in here:
        at = found.stored_at[place]
        # A message is further away than its level only if the clock was set back while it waited:
        # it is then delivered at once (ScheduleMessageService.correctDeliverTimestamp).
        is_set_back = sent.kind == "level" and sent.due - at > sent.delay
        if place.broker == sent.waits_at and at < int(sent.due) and not is_set_back:
            model.wrong(f"{what} came {sent.due - at:.0f} ms too early")
        if is_calm and at > sent.due_latest + LATE_WHEN_CALM:
            model.wrong(f"{what} came {at - sent.due_latest:.0f} ms late")
    if here or clocks[sent.waits_at] < sent.due_latest + LATE:
        return
    if model.keeps and not model.lost_acknowledged(sent.waits_at, sent.at):
        late = clocks[sent.waits_at] - sent.due_latest
        model.wrong(f"{what} was due {late:.0f} ms ago and is not there")


def _check_transaction(model: Model, sent: Sent, here: list[Place], is_given_up: bool) -> None:
    if here and sent.decided != "commit":
        model.wrong(f"transaction {sent.number} ({sent.decided or 'open'}) is visible at {here}")
    if here or sent.decided != "commit" or not sent.acknowledged_at or is_given_up:
        return
    if any(model.lost_acknowledged(broker, 0.0) for broker in list(model.losses)):
        return  # the half, or its end
    model.wrong(f"transaction {sent.number} was decided to be committed, and is not visible")


def _check_group(model: Model, group: Group, found: Found, dead: set[int]) -> None:
    # Messages that were not committed before a broker stopped, or while it was down, are
    # redelivered.
    spans = [(since - COMMITS, until + COMES_BACK) for since, until in model.stops]
    for number, places in sorted(found.of_topic(group.topic).items()):
        if not group.wants(tag_of(number)):
            continue
        if not group.finished[number] and number not in dead:
            if not _is_excused(model, group, number, places, found):
                had = f"had it {group.delivered[number]} times, failed {group.failed[number]}"
                model.wrong(f"message {number} at {places} was not finished by {group.name}: {had}")
        is_once = model.is_orderly and group.is_alone and not model.shows_early
        if is_once and not group.resets:
            extra = group.repeated(number, len(places), spans)
            if extra > 0:
                times = [round(at, 3) for at in group.times[number]]
                model.wrong(
                    f"message {number} at {places} was delivered to {group.name} at {times}: "
                    f"{extra} times too often"
                )
    for number in sorted(group.delivered):
        if group.delivered[number] and not group.wants(tag_of(number)):
            model.wrong(f"{group.name} was given message {number}, whose tag it does not want")


def _check_given(model: Model, group: Group, found: Found) -> None:
    """Messages delivered to a group are in their places: no read message was lost later."""
    for queue, progress in group.queues.items():
        if queue[0] != group.topic:
            continue  # its retries
        for offset, number in sorted(progress.numbers):
            place, sent = Place(*queue, offset), model.sent.get(number)
            if found.numbers.get(place) == number or sent is None:
                continue
            if model.is_past(offset, found.minimums.get(queue, 0)):
                continue
            if not model.gave_again(place.broker, sent.at):
                model.wrong(f"{group.name} was given message {number} at {place}: not there now")


def _is_excused(model: Model, group: Group, number: int, places: list[Place], found: Found) -> bool:
    """Whether a group may have passed a message without having received it.

    When a broker loses the end of a queue that a group has consumed, later messages get the offsets
    before the group's position. A client that returns before these offsets are reused learns the
    end of the queue; later it cannot.
    """
    if group.failed[number]:  # it was sent back, and that may have been lost
        at = group.times[number][-1]
        return not model.keeps or any(model.lost_any(broker, at) for broker in model.losses)
    losses = model.losses
    return all(
        any(_may_be_behind(model, found, place, loss) for loss in losses[place.broker])
        and _was_given_again(model, group, place, found)
        for place in places
    )


def _may_be_behind(model: Model, found: Found, place: Place, loss: float) -> bool:
    """Whether a message may have been stored after a loss; earlier messages that are there stay."""
    sent = model.sent[found.numbers[place]]
    if sent.kind != "single" or loss == inf:  # stored when it is due; or lost at a later start
        return True
    if sent.acknowledged_at or place in found.stored:
        return max(sent.acknowledged_at, _stored(model, found, place)) > loss
    return sent.at + (_TRIES_SECONDS if sent.tries > 1 else 0.0) > loss


def _was_given_again(model: Model, group: Group, place: Place, found: Found) -> bool:
    """Whether the offsets of a group after a place were reused before it returned."""
    had = group.queues[place[:3]].numbers
    # Later messages that were lost in turn did not advance the group.
    stored = _stored(model, found, place)
    later = {number for _, number in had if number in model.sent and model.sent[number].at > stored}
    lost = [
        offset for offset, number in had if offset >= place.offset and number not in later
        and found.numbers.get(Place(*place[:3], offset)) != number
    ]  # fmt: skip
    # The message that had its offset before may have had a tag that the group does not want.
    behind = group.queues[place[:3]].is_behind
    if group.tags and behind(place.offset, stored):
        lost.append(place.offset)
    if not lost or not model.losses[place.broker]:
        return False
    # After another crash the broker does not know the queue's end after the previous one.
    crashed_since = any(at > stored for at in model.crashes.get(place.broker, ()))
    if crashed_since and model.last_loss(place.broker, stored):
        return True
    again = Place(*place[:3], max(lost))
    if again not in found.numbers:
        return False
    at = _stored(model, found, again)
    # Its offset was free again after the loss of the message that had it before.
    times = [group.times[number] for offset, number in had if offset == again.offset]
    first = min(chain(*times), default=at)
    losses = [loss for loss in model.losses[place.broker] if first < loss < inf]
    at = max(at, min(losses, default=at))
    since = model.last_loss(place.broker, at)
    # An earlier message may have been in flight at a member all the time.
    new = [number for _, number in had if number in model.sent and model.sent[number].at > since]
    came_back = [time for number in new for time in group.times[number]]
    return not came_back or at <= min(came_back)


def _stored(model: Model, found: Found, place: Place) -> float:
    """When a message was stored in its place, or at least sent."""
    sent = model.sent.get(found.numbers[place])
    return max(found.stored.get(place, 0.0), 0.0 if sent is None else sent.at)
