"""Pages for tests of the frame: a name, a topic that is created and deleted, a stream."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from mq.client.admin import Admin
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.parsing import integer
from mq.daemons.console.route import (
    N_,
    Change,
    Event,
    Field,
    Outcome,
    Page,
    Permission,
    Plan,
    Query,
    Route,
    Sheet,
    Stream,
    Values,
)
from mq.protocol.bodies import TopicConfig


@dataclass(frozen=True, slots=True)
class Named:
    name: str
    name_servers: tuple[str, ...] = ()
    large: int = 2**63 - 1


async def show_name(call: Call) -> Page:
    name = next(iter(call.path.values()))
    return Page(
        "frame/home.html", name, Named(name), sheet=Sheet(("Name", "Length"), [(name, len(name))])
    )


async def show_body(call: Call) -> Page:
    call.viewed(call.path["topic"], "body")
    return await show_name(call)


async def count(call: Call) -> AsyncIterator[Event]:
    for number in range(call.query["to"] or 2**62):
        yield Event("number", {"number": number})
        if number == 1 and not call.query["to"]:
            await asyncio.Event().wait()


async def plan_topic(call: Call, values: Values) -> Plan:
    return Plan(
        (f"create topic {values['topic']}",), command=("updateTopic", "-t", values["topic"])
    )


async def create_topic(call: Call, values: Values, session: Caller) -> list[Outcome]:
    address = call.path["address"]
    await Admin(session).create_topic(
        address, TopicConfig(topic_name=values["topic"], read_queue_nums=4)
    )
    return [Outcome(address, True, "created")]


async def delete_topic(call: Call, values: Values, session: Caller) -> list[Outcome]:
    await Admin(session).delete_topic_in_broker(call.path["address"], values["topic"])
    return [Outcome("broker", True, "deleted")]


async def fail(call: Call) -> Page:
    raise RuntimeError("secret of the store: /var/lib/mq")


TOPIC = Field("topic", N_("Topic"), required=True, limit=100)
ROUTES = (
    Route("/named/{name}", show_name, Permission.READ, N_("A name.")),
    Route("/topics-of/{topic}", show_body, Permission.READ, N_("A topic."), subject="topic"),
    Route("/bodies/{topic}", show_body, Permission.BODIES, N_("A body."), subject="topic"),
    Route("/fails", fail, Permission.READ, N_("Fails.")),
    Stream("/count", count, Permission.READ, N_("Counts."), query=(Query("to", integer),)),
    Change(
        "/create/{address}",
        Permission.ADMINISTER,
        N_("Create"),
        "",
        (TOPIC,),
        plan_topic,
        create_topic,
    ),
    Change(
        "/delete/{address}",
        Permission.ADMINISTER,
        N_("Delete"),
        "",
        (TOPIC,),
        plan_topic,
        delete_topic,
        destroys=lambda call, values: str(values["topic"]),
    ),
)
