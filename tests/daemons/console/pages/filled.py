"""Consoles whose cluster has messages: plain and hostile ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bs4 import BeautifulSoup

from mq.client.admin import Admin
from mq.client.machine import clock
from mq.client.producer.producer import Producer
from mq.client.send_result import SendResult
from mq.client.transport.session import Session
from mq.daemons.console import locale
from mq.daemons.console.call import Call
from mq.daemons.console.pages.messages import QUERY
from mq.daemons.console.security.accounts import Account
from mq.daemons.console.security.roles import User
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.protocol.message import Message
from tests.daemons.console.site import Consoles, Site

TOPIC = "Orders"
HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "{{8191*8191}}",
    "'; --",
    "\u202eright to left\u2066",
    "nul\x00 and \x1b[31mred",
    "rune 🎈 𐍈",
    "</pre><script>alert(1)</script>",
    "=cmd|'/C calc'!A0",
)


@dataclass
class Filled:
    """A console, and the client that fills its cluster."""

    site: Site
    session: Session
    producer: Producer
    sent: list[SendResult] = field(default_factory=list)

    @property
    def admin(self) -> Admin:
        return Admin(self.session)

    async def topic(self, name: str = TOPIC, queues: int = 2) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        await self.admin.create_topic(self.site.pair.broker.address, config)
        await self.site.pair.broker.registration.announced()

    async def send(self, *messages: Message, queue: int = 0) -> list[SendResult]:
        done = [
            await self.producer.send(message, MessageQueue(message.topic, "broker-a", queue))
            for message in messages
        ]
        self.sent += done
        return done


@asynccontextmanager
async def filled(
    console: Consoles,
    settings: Mapping[str, str] | None = None,
    broker: Mapping[str, str] | None = None,
    users: Mapping[str, str | Account] | None = None,
    login: str = "",
) -> AsyncIterator[Filled]:
    """A console with a topic of two queues."""
    async with (
        console(settings, broker=broker, users=users, login=login) as site,
        Session(site.pair.name_server_address) as session,
        Producer(session, "fillers") as producer,
    ):
        made = Filled(site, session, producer)
        await made.topic()
        yield made


def hostile_messages(topic: str = TOPIC) -> list[Message]:
    """A message for each hostile text: as its tag, key, property and body."""
    found = []
    for number, text in enumerate(HOSTILE):
        message = Message(topic, text.encode(), text, ["x"], {"user": text})
        message.system["KEYS"] = f"{text} key-{number}"
        found.append(message)
    found.append(Message(topic, b"\xff\xfe\x00 no UTF-8 <img src=x onerror=alert(1)>"))
    return found


def assert_harmless(page: BeautifulSoup) -> None:
    """Check that hostile text has not become an element, an active attribute, or a template."""
    main = page.main
    assert main is not None
    assert main.find_all("img") == [] and main.find_all("script") == []
    assert main.find_all("iframe") == [] and "67092481" not in main.get_text()
    for tag in page.find_all(True):
        assert not [name for name in tag.attrs if name.startswith("on") or name == "style"], tag
        for name in ("href", "src", "action"):
            assert str(tag.get(name, "/")).startswith(("/", "#")), tag
    text = page.get_text()
    assert not [character for character in text if character in "\x00\x1b\u202e\u2066"]


def call_of(site: Site, user: User, path: Mapping[str, str], query: Mapping[str, Any]) -> Call:
    """Return a call as the frame does for this user."""
    now = clock.milliseconds()
    return Call(site.here, path, query, user, locale.texts("en"), now)


Test = Callable[[Filled], Awaitable[None]]


def run(console: Consoles, test: Test, **broker: str) -> None:
    """Run a test with a console whose broker has these settings."""

    async def main() -> None:
        async with filled(console, broker=broker) as made:
            await test(made)

    asyncio.run(main())


def no_query() -> dict[str, Any]:
    """Return the query of a search without conditions."""
    return {item.name: item.default for item in QUERY}
