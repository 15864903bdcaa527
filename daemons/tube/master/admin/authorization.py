"""Which groups may consume which topics, and which filter items of them (WebAdminTopicAuthHandler,
WebAdminGroupCtrlHandler).
"""

from collections.abc import Callable
from dataclasses import replace

from mq.daemons.tube.master.admin.answers import Row, data, outcome, stamped, who
from mq.daemons.tube.master.admin.parameters import Parameters
from mq.daemons.tube.master.catalog import ChangeRefused, DataCode
from mq.daemons.tube.master.core import Core
from mq.daemons.tube.master.records import Audit, ConsumeControl, TopicControl
from mq.daemons.tube.master.storage import Changes
from mq.protocol.tube.codes import UNDEFINED


async def set_topic_authorization(core: Core, p: Parameters) -> Row:
    """Set whether only allowed groups may consume topics. topicName, isEnable."""
    by = p.audit(adds=True, serial=core.catalog.next_serial())
    return await _authorize(core, p, by, enabled=bool(p.flag("isEnable", default=False)))


async def delete_topic_authorization(core: Core, p: Parameters) -> Row:
    """Let all groups consume topics."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())
    return await _authorize(core, p, by, enabled=False)


async def query_topic_authorization(core: Core, p: Parameters) -> Row:
    wanted = set(p.topics(needed=False))
    return data(
        [
            {
                "topicName": control.topic,
                "isEnable": control.auth_enabled,
                **who(control.audit),
                "authConsumeGroup": [
                    {"topicName": one.topic, "groupName": one.group, **who(one.audit)}
                    for one in core.catalog.consume_controls(control.topic)
                ],
                "groupCount": len(core.catalog.consume_controls(control.topic)),
            }
            for control in core.catalog.topic_controls()
            if not wanted or control.topic in wanted
        ]
    )


async def allow_group(core: Core, p: Parameters) -> Row:
    """Let groups consume topics with restricted consumption. groupName, topicName."""
    return await _consume(core, p, "Old API add, enable consume", adds=True, enabled=True)


async def forbid_group(core: Core, p: Parameters) -> Row:
    """Undo `allow_group`."""
    return await _consume(core, p, "Old API delete, disable consume", adds=False, enabled=False)


async def blacklist_group(core: Core, p: Parameters) -> Row:
    """Let groups consume nothing of topics, even if others may."""
    text = "Old API add blacklist, disable consume"
    return await _consume(core, p, text, adds=True, enabled=False)


async def query_allowed(core: Core, p: Parameters) -> Row:
    topics, groups = set(p.topics(needed=False)), set(p.groups(needed=False))
    return data(
        [
            {"topicName": one.topic, "groupName": one.group, **who(one.audit)}
            for one in core.catalog.consume_controls()
            if one.enabled
            and (not topics or one.topic in topics)
            and (not groups or one.group in groups)
        ]
    )


async def set_filter(core: Core, p: Parameters) -> Row:
    """Let groups consume only some filter items of topics. condStatus (2: in force),
    filterConds."""
    return await _filter(core, p, adds=True)


async def update_filter(core: Core, p: Parameters) -> Row:
    return await _filter(core, p, adds=False)


async def delete_filter(core: Core, p: Parameters) -> Row:
    """Let groups consume all of topics."""
    by = p.audit(adds=False, serial=core.catalog.next_serial())

    def step(group: str, topic: str) -> Changes:
        old = core.catalog.consume_control(group, topic)
        if old is None or not old.filter_enabled:
            return {}
        new = replace(old, filter_enabled=False, filters=[], audit=stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_pair(core, p, step)


async def query_filter(core: Core, p: Parameters) -> Row:
    topics, groups = set(p.topics(needed=False)), set(p.groups(needed=False))
    return data(
        [
            {
                "topicName": one.topic,
                "groupName": one.group,
                "condStatus": 2 if one.filter_enabled else 0,
                "filterConds": f",{','.join(one.filters)}," if one.filters else "",
                **who(one.audit),
            }
            for one in core.catalog.consume_controls()
            if (not topics or one.topic in topics) and (not groups or one.group in groups)
        ]
    )


async def _authorize(core: Core, p: Parameters, by: Audit, *, enabled: bool) -> Row:
    def step(topic: str) -> Changes:
        old = core.catalog.topic_control(topic)
        new = replace(old or TopicControl(topic, audit=by), auth_enabled=enabled)
        if old is not None:
            new = replace(new, audit=stamped(old.audit, by))
        return {(new.kind, new.key): new}

    rows = []
    for each in p.topics(needed=True):

        async def change(topic: str = each) -> None:
            await core.catalog.change(lambda: step(topic))

        rows.append(await outcome(change, topicName=each))
    return data(rows)


async def _consume(core: Core, p: Parameters, reason: str, *, adds: bool, enabled: bool) -> Row:
    by = p.audit(adds=adds, serial=core.catalog.next_serial())

    def step(group: str, topic: str) -> Changes:
        old = core.catalog.consume_control(group, topic)
        if old is None and not adds:
            return {}
        if old is not None and old.enabled is enabled:
            return {}
        _check_deployed(core, topic)
        new = replace(old or ConsumeControl(group, topic, audit=by), enabled=enabled, reason=reason)
        if old is not None:
            new = replace(new, audit=stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_pair(core, p, step)


async def _filter(core: Core, p: Parameters, *, adds: bool) -> Row:
    by = p.audit(adds=adds, serial=core.catalog.next_serial())
    items = p.filter_items()
    status = p.number("condStatus", default=UNDEFINED, most=2)

    def step(group: str, topic: str) -> Changes:
        old = core.catalog.consume_control(group, topic)
        if old is None and not adds:
            raise ChangeRefused(DataCode.NOT_EXIST, "Record not exist")
        _check_deployed(core, topic)
        new = old or ConsumeControl(group, topic, audit=by)
        new = replace(
            new,
            reason="Old API set filter conditions",
            filter_enabled=new.filter_enabled if status == UNDEFINED else status == 2,
            filters=new.filters if items is None else items,
        )
        if old is not None:
            new = replace(new, audit=stamped(old.audit, by))
        return {(new.kind, new.key): new}

    return await _each_pair(core, p, step)


def _check_deployed(core: Core, topic: str) -> None:
    if topic not in core.catalog.deployed_topics():
        raise ChangeRefused(
            DataCode.NOT_EXIST, f"Not found the topic {topic} in the deployed topics"
        )


async def _each_pair(core: Core, p: Parameters, step: Callable[[str, str], Changes]) -> Row:
    rows = []
    topics = p.topics(needed=True)
    for group in p.groups(needed=True):
        for topic in topics:

            async def change(group: str = group, topic: str = topic) -> None:
                await core.catalog.change(lambda: step(group, topic))

            rows.append(await outcome(change, groupName=group, topicName=topic))
    return data(rows)
