"""A web service: accepts orders over HTTP, sends them as messages, and shows which have been
billed.

    uvicorn service:app                 NAMESRV_ADDR has the name servers

    POST /orders {"id": "order-1", "euro": 40}
    GET /orders/order-1

One producer and one consumer live as long as the service: all requests share them. The service
shows what it has read from the topics Orders and Bills. Each process keeps its own view in memory,
read from the beginning; a service with more orders than fit in memory needs a database.
"""

import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field

from mq.client import ConsumeFromWhere, Consumer, Message, MQError, Producer, StoredMessage

log = logging.getLogger("service")

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")


class Order(BaseModel):
    """A request body with an order."""

    id: str = Field(pattern=r"^[\w.-]{1,64}$")
    euro: int = Field(gt=0)


class View:
    """The orders and the billed ones, according to the messages so far."""

    def __init__(self) -> None:
        self._euro: dict[str, int] = {}
        self._billed: set[str] = set()

    async def take(self, message: StoredMessage) -> None:
        """The listener. Messages of two topics arrive in any order, and may arrive twice."""
        try:
            content = json.loads(message.body)
            if message.topic == "Orders":
                self._euro[str(content["id"])] = int(content["euro"])
            else:
                self._billed.add(str(content["order"]))
        except (ValueError, TypeError, KeyError) as error:
            log.error("skipping %s of %s: %s", message.message_id, message.topic, error)

    def status(self, order: str) -> str | None:
        """Return `ordered` or `billed`; None if no message about the order has arrived yet."""
        if order in self._billed:
            return "billed"
        return "ordered" if order in self._euro else None


@asynccontextmanager
async def lifespan(service: FastAPI) -> AsyncIterator[None]:
    view = View()
    with TemporaryDirectory() as offsets:  # the offsets are deleted together with the view
        async with (
            Producer(NAME_SERVERS, "order-service") as producer,
            Consumer(
                NAME_SERVERS,
                "order-view",
                {"Orders": "*", "Bills": "*"},
                listener=view.take,
                broadcasting=True,  # each process gets every message
                offset_directory=Path(offsets),
                consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                instance=f"order-view-{os.getpid()}",
            ),
        ):
            service.state.producer, service.state.view = producer, view
            yield


app = FastAPI(title="Orders", lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(order: Order, request: Request, response: Response) -> dict[str, str]:
    """Send an order. 202: the broker has stored it. 503: retry; it may be stored already."""
    body = order.model_dump_json().encode()
    try:
        sent = await request.app.state.producer.send(Message("Orders", body, keys=order.id))
    except MQError as error:
        log.error("%s: %s", order.id, error)
        if error.retriable:
            raise HTTPException(503, "no broker has taken it", {"Retry-After": "1"}) from error
        raise
    response.headers["Location"] = f"/orders/{order.id}"
    return {"messageId": sent.message_id}


@app.get("/orders/{order}")
async def status(order: str, request: Request) -> dict[str, str]:
    """Return the status of an order."""
    found = request.app.state.view.status(order)
    if found is None:
        raise HTTPException(404, f"no order {order}")
    return {"id": order, "status": found}
