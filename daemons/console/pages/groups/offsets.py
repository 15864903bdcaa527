"""Offset resets of a consumer group: see `resets`."""

from mq.daemons.console.call import Call
from mq.daemons.console.pages import resets
from mq.daemons.console.route import N_, Change, Field, Permission, Query, Values


async def _topic_asked(call: Call) -> Values:
    return {"topic": call.query["topic"], "to": "time"}


ROUTES = (
    Change(
        "/groups/{group}/reset",
        Permission.OPERATE,
        N_("Reset the offsets of a consumer group"),
        "group",
        (Field("topic", N_("Topic"), required=True, limit=255), *resets.FIELDS),
        resets.plan,
        resets.perform,
        initial=_topic_asked,
        query=(Query("topic", default="", about=N_("The topic to fill in.")),),
        check=resets.check,
    ),
)
