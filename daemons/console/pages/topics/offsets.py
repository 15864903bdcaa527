"""The offsets of a topic's groups: see `resets`."""

from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.pages import resets
from mq.daemons.console.route import N_, Change, Field, Outcome, Permission, Plan, Query, Values


async def _skip_all(call: Call, values: Values, session: Caller) -> list[Outcome]:
    return await resets.perform(call, _to_the_end(values), session)


async def _plan_skip(call: Call, values: Values) -> Plan:
    planned = await resets.plan(call, _to_the_end(values))
    command = ("skipAccumulatedMessage", "-g", values["group"], "-t", call.path["topic"])
    return Plan(planned.lines, planned.tables, command, planned.warning)


def _to_the_end(values: Values) -> Values:
    return {
        **{"group": values["group"], "to": "latest", "time": None, "broker": None},
        **{"queue": None, "offset": None, "back": False, "offline": False},
    }


def _check_skip(call: Call, values: Values) -> None:
    resets.check(call, _to_the_end(values))


async def _group_asked(call: Call) -> Values:
    return {"group": call.query["group"], "to": "time"}


_GROUP = Field("group", N_("Consumer group"), required=True, limit=255)
_OF_GROUP = (Query("group", about=N_("The group to fill in."), default=""),)


ROUTES = (
    Change(
        "/topics/{topic}/reset",
        Permission.OPERATE,
        N_("Reset the offsets of a group in a topic"),
        "topic",
        (_GROUP, *resets.FIELDS),
        resets.plan,
        resets.perform,
        initial=_group_asked,
        query=_OF_GROUP,
        check=resets.check,
    ),
    Change(
        "/topics/{topic}/skip",
        Permission.OPERATE,
        N_("Skip the lag of a group"),
        "topic",
        (_GROUP,),
        _plan_skip,
        _skip_all,
        initial=_group_asked,
        query=_OF_GROUP,
        check=_check_skip,
    ),
)
