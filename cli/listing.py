"""The list of all topics, in the order of the reply (for the reason see
`mq.client.operations.wire`).

It avoids `mq.protocol.bodies`, which takes 8 ms to import: `mq topicList` is called often.
"""

from typing import TYPE_CHECKING

from mq.client.errors import BadAnswer
from mq.protocol import fastjson
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller


async def topic_names(session: "Caller") -> list[str]:
    """Return the names of all topics. Raises the errors of `Caller.call_name_server`, and
    BadAnswer.
    """
    request = Command(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    response = await session.call_name_server(request)
    try:
        names = fastjson.loads(response.body)["topicList"]
        if not all(type(name) is str for name in names):
            raise TypeError("a topic's name must be text")
    except (fastjson.MalformedJson, KeyError, TypeError) as error:
        raise BadAnswer("name server", f"not a list of topics: {error!r}") from None
    return list(names)
