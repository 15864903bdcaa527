"""Previews and confirmations: the previewed change is made, once, for the user of the preview."""

import asyncio
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from mq.client.admin import Admin
from mq.client.transport.caller import Caller
from mq.daemons.console.call import Call
from mq.daemons.console.changes import pending
from mq.daemons.console.route import Change, Field, Outcome, Permission, Plan, Sheet, Values
from mq.protocol.bodies import TopicConfig
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Browser, Consoles, account, add_user, fields_of


async def topics(site: Browser) -> list[str]:
    return list((await Admin(site.here.session).topic_list()).topic_list)  # type: ignore[attr-defined]


@pytest.mark.parametrize("what", ["topic_name", "read_queue_nums", "perm"])
def test_what_the_preview_did_not_show_is_not_sent(console: Consoles, what: str) -> None:
    turns: list[str] = []
    shown, hidden = (TopicConfig(topic_name="Shown", read_queue_nums=1, perm=6) for _ in range(2))
    setattr(hidden, what, "Hidden" if what == "topic_name" else 4)

    async def perform(call: Call, values: Values, session: Caller) -> list[Outcome]:
        turns.append("again" if turns else "first")
        config = shown if len(turns) == 1 else hidden
        await Admin(session).create_topic(call.path["address"], config)
        return [Outcome("topic", True, "created")]

    change = Change(
        "/two/{address}",
        Permission.ADMINISTER,
        "Two",
        "",
        (Field("topic", "T"),),
        plan_one,
        perform,
    )

    async def main() -> None:
        async with console(routes=(change,)) as site:
            result = await site.change(f"/two/{site.pair.broker.address}")
            assert turns == ["first", "again"]
            assert "was not in the preview" in result.text
            assert not {"Shown", "Hidden"} & set(await topics(site))
            assert site.audit[-1]["state"] == "failed"

    asyncio.run(main())


async def plan_one(call: Call, values: Values) -> Plan:
    return Plan(("create a topic",))


def test_a_preview_is_its_users_its_windows_and_its_addresses(console: Consoles) -> None:
    users = {"ann": "administrator", "bob": "administrator"}

    async def main() -> None:
        async with console(routes=ROUTES, users=users, login="ann") as site:
            path = f"/create/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            field = preview.form().find("input", attrs={"name": "confirm"})
            assert field is not None
            hash = str(field["value"])
            bob, window = site.browser(), site.browser()
            await bob.log_in("bob")
            await window.log_in("ann")
            for other in (bob, window):
                form = (await other.get(path)).form().find("input", attrs={"name": "csrf"})
                assert form is not None
                fields = {"csrf": str(form["value"]), "confirm": hash}
                assert (await other.post(path, fields)).status == 409
            own = preview.form().find("input", attrs={"name": "csrf"})
            assert own is not None
            fields = {"csrf": str(own["value"]), "confirm": hash}
            elsewhere = await site.post(path.replace("create", "delete"), fields)
            assert elsewhere.status == 409
            assert "Orders" not in await topics(site)
            assert (await site.submit(preview)).status == 200
            assert "Orders" in await topics(site)

    asyncio.run(main())


def test_a_preview_that_is_too_old_is_looked_at_again(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.daemons.console.changes import engine

    monkeypatch.setattr(engine, "PREVIEW_SECONDS", 0.0)

    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            assert (await site.submit(preview)).status == 409
            assert "Orders" not in await topics(site)

    asyncio.run(main())


def test_a_role_that_was_lost_between_preview_and_confirmation_counts(console: Consoles) -> None:
    async def main() -> None:
        from mq.daemons.console.security import accounts

        async with console(routes=ROUTES, users={"ann": account("ann")}) as site:
            token, kept = accounts.new_token()
            path = site.console.settings.console.users_path
            with accounts.changing(path) as found:
                found.tokens["ci"] = replace(account("ci"), secret=kept)
            site.console.reload()
            address = f"/create/{site.pair.broker.address}"
            plan = await site.api(address, {"topic": "Orders"}, token=token)
            assert plan.status == 200
            with accounts.changing(path) as found:
                found.tokens["ci"] = replace(found.tokens["ci"], roles={"*": "operator"})
            site.console.reload()
            refused = await site.api(address, {"confirm": plan.json["confirm"]}, token=token)
            assert refused.status == 403
            assert "Orders" not in await topics(site)

    asyncio.run(main())


def test_a_form_that_is_wrong_is_shown_again_with_what_was_written(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            page = await site.submit(await site.get(path), {"topic": "x" * 101})
            assert page.status == 400
            field = page.form().find("input", attrs={"name": "topic"})
            assert field is not None and field["value"] == "x" * 101
            assert field["aria-invalid"] == "true"
            error = page.soup.find(id=str(field["aria-describedby"]))
            assert error is not None and "at most 100" in error.get_text()
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            again = await site.submit(preview, {"again": "1"})
            field = again.form().find("input", attrs={"name": "topic"})
            assert field is not None and field["value"] == "Orders"

    asyncio.run(main())


def test_the_shelf_keeps_few_of_a_user_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "MAX_PER_USER", 2)
    monkeypatch.setattr(pending, "MAX_ENTRIES", 3)
    shelf = pending.PendingStore()

    def result(name: str, user: str) -> pending.Result:
        return pending.Result(name, user, "c", "t", Plan(()), (), float("inf"))

    for name, user in (("1", "ann"), ("2", "ann"), ("3", "ann"), ("4", "bob"), ("5", "carl")):
        shelf.put(name, result(name, user))
    assert [name for name in "12345" if shelf.get(name)] == ["3", "4", "5"]
    assert shelf.take("4") is not None
    assert shelf.take("4") is None


def test_a_secret_is_in_no_page_and_in_no_audit(console: Consoles) -> None:
    async def perform(call: Call, values: Values, session: Caller) -> list[Outcome]:
        assert values["secret"] == "hunter2hunter2"
        return await _create(call, session)

    async def _create(call: Call, session: Caller) -> list[Outcome]:
        config = TopicConfig(topic_name="T", read_queue_nums=1)
        await Admin(session).create_topic(call.path["address"], config)
        return [Outcome("T", True, "created")]

    fields = (Field("secret", "Secret", kind="secret", required=True),)
    change = Change("/s/{address}", Permission.ADMINISTER, "S", "", fields, plan_one, perform)

    async def main() -> None:
        async with console(routes=(change,)) as site:
            path = f"/s/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"secret": "hunter2hunter2"})
            assert "hunter2" not in preview.text
            done = await site.submit(preview)
            assert done.tables()[0][0][1] == "done"
            assert "hunter2" not in done.text
            assert "hunter2" not in site.console.settings.console.audit_path.read_text()

    asyncio.run(main())


def creating(begun: asyncio.Event, go_on: asyncio.Event, turns: list[str]) -> Change:
    """A change that creates two topics, and fails between them."""

    async def perform(call: Call, values: Values, session: Caller) -> list[Outcome]:
        turns.append("turn")
        for name in ("First", "Second"):
            config = TopicConfig(topic_name=name, read_queue_nums=1)
            await Admin(session).create_topic(call.path["address"], config)
            if name == "First" and len(turns) == 2:
                begun.set()
                await go_on.wait()
        return [Outcome("topics", True, "created")]

    fields = (Field("topic", "T"),)
    return Change("/two/{address}", Permission.ADMINISTER, "Two", "", fields, plan_one, perform)


def test_a_role_that_is_lost_meanwhile_ends_a_change(console: Consoles) -> None:
    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        route = creating(begun, go_on, [])
        async with console(routes=(route,), users={"ann": "administrator"}, login="ann") as site:
            path = f"/two/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path))
            confirming = asyncio.create_task(site.submit(preview))
            await begun.wait()
            add_user(site.console.settings.console.users_path, "ann", "viewer")
            site.console.reload()
            go_on.set()
            await confirming
            assert [one for one in await topics(site) if one in ("First", "Second")] == ["First"]
            last = [e for e in site.audit if e["what"] == "change"][-1]
            assert (last["user"], last["state"]) == ("ann", "failed")
            assert "this user is no longer allowed" in last["results"][0]["text"]

    asyncio.run(main())


def test_who_logs_out_meanwhile_has_his_change_made(console: Consoles) -> None:
    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        route = creating(begun, go_on, [])
        async with console(routes=(route,), users={"ann": "administrator"}, login="ann") as site:
            path = f"/two/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path))
            confirming = asyncio.create_task(site.submit(preview))
            await begun.wait()
            site.console.access.sessions.end(site.cookies["mq"])
            go_on.set()
            await confirming
            assert {"First", "Second"} <= set(await topics(site))

    asyncio.run(main())


def test_a_change_does_not_outlive_its_console_and_the_audit_says_so(console: Consoles) -> None:
    async def main() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()
        async with console(routes=(creating(begun, go_on, []),)) as site:
            path = f"/two/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path))
            confirming = asyncio.create_task(site.submit(preview))
            await begun.wait()
            await site.console.__aexit__()
            states = [e["state"] for e in site.audit if e["what"] == "change"]
            assert states == ["begins", "cut off by the stop"]
            assert (await confirming).status == 500
            assert site.console.audit._descriptor is None

    asyncio.run(main())


def test_a_role_that_was_lost_before_the_body_of_a_form_came_counts(console: Consoles) -> None:
    async def main() -> None:
        users = {"ann": "administrator"}
        async with console(routes=ROUTES, users=users, login="ann") as site:
            path = f"/create/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            body = urlencode(fields_of(preview.form())).encode()
            head = (
                f"POST {site.of_cluster(path)} HTTP/1.1\r\nHost: {site.host}:{site.port}\r\n"
                f"Cookie: mq={site.cookies['mq']}\r\nContent-Length: {len(body)}\r\n"
                "Content-Type: application/x-www-form-urlencoded\r\n"
                "Sec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n"
            )
            reader, writer = await asyncio.open_connection(site.host, site.port)
            requests = site.console.shell.requests
            writer.write(head.encode() + body[:1])
            while site.console.shell.requests == requests:  # noqa: ASYNC110 - the head is to come
                await asyncio.sleep(0)
            add_user(site.console.settings.console.users_path, "ann", "viewer")
            site.console.reload()
            writer.write(body[1:])
            assert (await reader.read()).startswith(b"HTTP/1.1 401")
            writer.close()
            assert "Orders" not in await topics(site)

    asyncio.run(main())


def test_all_of_a_preview_counts_for_how_much_is_kept(console: Consoles) -> None:
    async def plan(call: Call, values: Values) -> Plan:
        return Plan(("line" * 1000,), (Sheet(("A",), [("cell" * 1000,)] * 10),))

    async def perform(call: Call, values: Values, session: Caller) -> list[Outcome]:
        return [Outcome("target", True, "text" * 1000)]

    change = Change("/large", Permission.OPERATE, "Large", "", (Field("a", "A"),), plan, perform)

    async def main() -> None:
        async with console(routes=(change,)) as site:
            engine = site.console.frame.engine
            preview = await site.submit(await site.get("/large"))
            assert engine._previews._bytes >= 44_000
            await site.submit(preview)
            assert engine._previews._bytes == 0
            assert engine._results._bytes >= 4_000

    asyncio.run(main())


@pytest.mark.parametrize("secret", ["by its key", "by its value"])
def test_the_audit_does_not_have_a_setting_that_is_a_secret(console: Consoles, secret: str) -> None:
    fields = (Field("key", "K", required=True), Field("value", "V", required=True))

    async def perform(call: Call, values: Values, session: Caller) -> list[Outcome]:
        return [Outcome("broker", True, "changed")]

    change = Change("/set", Permission.OPERATE, "Set", "", fields, plan_one, perform)
    given = {
        "by its key": {"key": "tlsPassword", "value": "hunter2"},
        "by its value": {"key": "user", "value": '{"username":"a","password":"hunter2"}'},
    }[secret]

    async def main() -> None:
        async with console(routes=(change,)) as site:
            await site.change("/set", given)
            assert site.audit[-1]["parameters"] == {"key": given["key"], "value": "******"}
            assert "hunter2" not in site.console.audit.path.read_text()

    asyncio.run(main())
