"""Authentication and permissions: each attack is tried against a running console."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.machine import clock, files
from mq.client.operations.errors import CannotWrite
from mq.client.options import ClientOptions
from mq.daemons.console.app import Console
from mq.daemons.console.clusters import ClusterSource
from mq.daemons.console.config import ConsoleSettings
from mq.daemons.console.security import accounts
from mq.daemons.service import CannotStart
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Answer, Browser, Consoles, account, add_user

SOURCES = [ClusterSource("test", "127.0.0.1:9", ClientOptions())]


async def refusal(folder: Path, **settings: str) -> str:
    """Return the error of a console's start."""
    given = {"listenPort": "0", "dataPath": str(folder)} | settings
    try:
        async with Console(ConsoleSettings.load(None, given), SOURCES):
            return ""
    except CannotStart as error:
        return str(error)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"bindAddress": "0.0.0.0"}, "bindAddress=0.0.0.0 needs accounts"),
        ({"bindAddress": "0.0.0.0", "tls.test.mode.enable": "true"}, "needs accounts"),
        ({"allowedHosts": "console.example"}, "need accounts"),
        ({"trustedProxies": "10.0.0.1"}, "need accounts"),
        ({}, ""),
    ],
)
def test_without_accounts_it_is_for_its_own_machine(
    tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    refused = asyncio.run(refusal(tmp_path, **settings))
    assert why in refused
    assert bool(why) == bool(refused)


def test_off_loopback_it_needs_tls_or_a_proxy_that_has_it(tmp_path: Path) -> None:
    add_user(tmp_path / "users.json", "ann", "administrator")
    assert "needs TLS" in asyncio.run(refusal(tmp_path, bindAddress="0.0.0.0"))
    proxied = {"tlsAtProxy": "true", "trustedProxies": "10.0.0.1"}
    assert asyncio.run(refusal(tmp_path, bindAddress="0.0.0.0", **proxied)) == ""
    assert (
        asyncio.run(refusal(tmp_path, bindAddress="0.0.0.0", **{"tls.test.mode.enable": "true"}))
        == ""
    )


def test_a_file_of_accounts_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    add_user(tmp_path / "users.json", "ann", "reader")
    (tmp_path / "users.json").chmod(0o644)
    assert "chmod 600" in asyncio.run(refusal(tmp_path))


def test_two_consoles_never_share_a_folder(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            assert site.console.url
            # Locks are between processes: this checks from another one.
            code = (
                "import asyncio, sys; from pathlib import Path\n"
                "from tests.daemons.console.security.test_access import refusal\n"
                "print(asyncio.run(refusal(Path(sys.argv[1]))))"
            )
            import sys

            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, str(console.folder / "console"), stdout=-1
            )
            out, _ = await process.communicate()
            assert b"another console uses this directory" in out

    asyncio.run(main())


def test_nobody_sees_a_page_without_logging_in(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}, routes=ROUTES) as site:
            for path in ("/", "/named/x?page=2", "/operations", "/nothing"):
                answer = await site.get(path)
                assert answer.status == 303, path
                assert answer.header("location").startswith("/login?next=%2Fc%2Ftest%2F")
                assert (await site.api(path)).status == 401
            # without disclosing whether it exists
            assert (await site.get("/c/other/")).status == 303
            page = await site.log_in("ann", wanted="/c/test/named/x?page=2")
            assert page.url == "/c/test/named/x?page=2"

    asyncio.run(main())


def test_a_wrong_password_and_an_unknown_name_look_the_same(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}) as site:
            before = site.console.access.passwords.hashes
            wrong = await site.log_in("ann", "not it")
            nobody = await site.log_in("bob", "not it")
            assert site.console.access.passwords.hashes == before + 2
            assert (wrong.status, nobody.status) == (401, 401)
            alert = wrong.soup.find(role="alert")
            assert alert is not None and alert == nobody.soup.find(role="alert")
            assert [e["state"] for e in site.audit if e["what"] == "login"] == ["refused"] * 2
            assert "not it" not in site.console.settings.console.audit_path.read_text()

    asyncio.run(main())


def test_a_session_fixed_before_login_is_worth_nothing_after(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "administrator"}) as site:
            site.cookies["mq"] = "chosen-by-an-attacker"
            await site.log_in("ann")
            assert site.cookies["mq"] != "chosen-by-an-attacker"
            attacker = site.browser()
            attacker.cookies["mq"] = "chosen-by-an-attacker"
            assert (await attacker.get("/")).status == 303

    asyncio.run(main())


def test_logging_out_ends_the_session_for_all_who_have_its_cookie(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}, login="ann") as site:
            copied = site.browser()
            copied.cookies |= site.cookies
            page = await site.get("/")
            assert page.header("cache-control") == "no-store"
            assert (await site.get("/logout")).status in (404, 405)
            form = page.soup.find("form", action="/logout")
            assert form is not None
            token = form.find("input", attrs={"name": "csrf"})
            assert token is not None
            before = site.cookies["mq"]
            await site.post("/logout", {"csrf": str(token["value"])})
            assert site.cookies["mq"] != before
            assert (await copied.get("/")).status == 303

    asyncio.run(main())


def test_a_change_of_the_account_ends_its_sessions(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "administrator", "bob": "reader"}, login="ann") as site:
            other = site.browser()
            await other.log_in("bob")
            path = site.console.settings.console.users_path
            with accounts.changing(path) as found:
                found.users["ann"] = replace(found.users["ann"], roles={"*": "viewer"})
            site.console.reload()
            assert (await site.get("/")).status == 303
            assert (await other.get("/")).status == 200
            with accounts.changing(path) as found:
                found.users.clear()
            site.console.reload()
            # A missing file of accounts makes no visitor an administrator.
            assert (await other.get("/")).status == 303
            path.unlink()
            site.console.reload()
            assert (await other.get("/")).status == 303

    asyncio.run(main())


def test_a_damaged_file_of_accounts_leaves_those_there_are(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}, login="ann") as site:
            site.console.settings.console.users_path.write_text("{")
            site.console.reload()
            assert (await site.get("/")).status == 200

    asyncio.run(main())


def test_of_a_thousand_tries_few_reach_the_hash_and_the_rightful_user_gets_in(
    console: Consoles,
) -> None:
    async def main() -> None:
        settings = {"trustedProxies": "127.0.0.1"}
        async with console(settings, users={"ann": "reader"}) as site:
            access = site.console.access
            attacker = Browser("127.0.0.1", site.port, headers={"X-Forwarded-For": "203.0.113.5"})
            page = await attacker.get("/login")
            token = page.form().find("input", attrs={"name": "csrf"})
            assert token is not None
            fields = {"csrf": str(token["value"]), "name": "ann", "password": "guess"}
            before = access.passwords.hashes
            for _ in range(20):
                tries = [attacker.post("/login", fields) for _ in range(50)]
                answers = await asyncio.gather(*tries)
                assert {one.status for one in answers} == {401}
            assert access.passwords.hashes - before <= 20
            assert access.throttle.turned_away >= 980
            rightful = Browser("127.0.0.1", site.port, headers={"X-Forwarded-For": "203.0.113.9"})
            assert (await rightful.log_in("ann")).status == 200

    asyncio.run(main())


def test_a_token_is_for_programs_until_it_expires(console: Consoles) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}, routes=ROUTES) as site:
            token, kept = accounts.new_token()
            old, kept_old = accounts.new_token()
            with accounts.changing(site.console.settings.console.users_path) as found:
                mine = account("ci", "operator", topics=("Orders*",))
                found.tokens["ci"] = replace(mine, secret=kept)
                found.tokens["old"] = replace(mine, secret=kept_old, expires=1)
            site.console.reload()
            assert (await site.api("/", token=token)).status == 200
            assert (await site.api("/topics-of/Orders1", token=token)).status == 200
            assert (await site.api("/topics-of/Other", token=token)).status == 403
            for wrong in (old, kept, token[:-1], ""):
                assert (await site.api("/", token=wrong)).status == 401
            pages = await site.get("/", Authorization=f"Bearer {token}")
            assert pages.status == 303  # pages are for users

    asyncio.run(main())


@pytest.mark.parametrize(
    "wanted",
    [
        *("//evil.example/", "https://evil.example/", "/\\evil.example", "\\\\evil.example"),
        *("/c/\r\nSet-Cookie: a=b", "javascript:alert(1)", "/\t/evil.example", "/c/\x00"),
    ],
)
def test_a_login_leads_to_this_console_only(console: Consoles, wanted: str) -> None:
    async def main() -> None:
        async with console(users={"ann": "reader"}) as site:
            page = await site.log_in("ann", wanted=wanted)
            assert page.url == "/c/test/"
            assert len([1 for name, _ in page.headers if name == "set-cookie"]) == 0

    asyncio.run(main())


def test_cookies_are_bound_to_the_host_and_hidden_from_scripts(console: Consoles) -> None:
    async def main() -> None:
        async with console({"tls.test.mode.enable": "true"}, users={"ann": "reader"}) as site:
            page = await site.get("/login")
            cookie = page.header("set-cookie")
            assert cookie.startswith("__Host-mq=")
            for attribute in ("Secure", "HttpOnly", "SameSite=lax", "Path=/"):
                assert attribute in cookie
            assert "Domain" not in cookie
            assert page.header("strict-transport-security")
            assert (await site.log_in("ann")).status == 200

    asyncio.run(main())


def test_patterns_hold_at_the_route_and_in_the_session(console: Consoles) -> None:
    limited = account("ann", "administrator", topics=("mine-*",), groups=("mine-*",))

    async def main() -> None:
        async with console(users={"ann": limited}, routes=ROUTES, login="ann") as site:
            assert (await site.get("/topics-of/mine-1")).status == 200
            assert (await site.get("/topics-of/other")).status == 403
            assert (await site.get("/topics-of/%25DLQ%25mine-g")).status == 200
            assert (await site.get("/topics-of/%25DLQ%25other")).status == 403
            # The route names no topic: the session has to refuse the values of the form.
            address = site.pair.broker.address
            page = await site.get(f"/create/{address}")
            assert (await site.submit(page, {"topic": "mine-2"})).status == 200
            refused = await site.submit(page, {"topic": "other"})
            assert refused.status == 403
            topics = (await Admin(site.here.session).topic_list()).topic_list
            assert "other" not in topics

    asyncio.run(main())


def test_a_proxy_in_front_of_a_console_without_accounts_gets_nothing(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            assert (await site.get("/")).status == 200
            assert (await site.get("/", X_Forwarded_For="203.0.113.5")).status == 303
            assert (await site.get("/", Via="1.1 proxy")).status == 303

    asyncio.run(main())


def test_strangers_do_not_fill_the_disk_with_refusals(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.daemons.console.security import access

    monkeypatch.setattr(access, "REFUSALS_A_MINUTE", 3)

    async def main() -> None:
        async with console(users={"ann": "administrator"}) as site:
            for _ in range(10):
                assert (await site.api("/", token="mqc_x")).status == 401
            assert [e["what"] for e in site.audit] == ["refused"] * 3
            assert site.console.access.untold == 7
            site.console.access._minute -= 60.0
            await site.api("/")
            assert site.audit[-1]["untold"] == 7
            # Changes are always recorded.
            await site.log_in("ann")
            assert site.audit[-1]["what"] == "login"

    asyncio.run(main())


def test_tries_at_an_account_are_not_hidden_behind_a_crowd_of_refusals(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.daemons.console.security import access

    monkeypatch.setattr(access, "REFUSALS_A_MINUTE", 3)

    async def main() -> None:
        async with console(users={"ann": "administrator"}) as site:
            for _ in range(4):
                await site.get("/")
            await site.log_in("nobody", "guess")
            await site.log_in("ann", "guess")
            assert [(e["what"], e["user"]) for e in site.audit][-2:] == [
                ("login", "nobody"),
                ("login", "ann"),
            ]
            assert site.console.access.untold == 1

    asyncio.run(main())


def test_a_file_of_accounts_that_becomes_usable_is_read_then(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.daemons.console.security import access

    monkeypatch.setattr(access, "LOOK_SECONDS", 0.0)

    async def main() -> None:
        async with console(users={"ann": "reader", "bob": "reader"}, login="ann") as site:
            path = site.console.settings.console.users_path
            with accounts.changing(path) as found:
                del found.users["ann"]
            path.chmod(0o644)
            assert (await site.get("/")).status == 200
            path.chmod(0o600)  # as in the log; neither its time nor its size change
            assert (await site.get("/")).status == 303

    asyncio.run(main())


def test_a_page_that_fetches_itself_keeps_no_session_alive(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(site: Browser, headers: dict[str, str]) -> Answer:
        return await site.request("GET", site.of_cluster("/named/x"), headers=headers)

    now = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])

    async def main() -> None:
        settings = {"sessionIdleMinutes": "30"}
        async with console(settings, users={"ann": "reader"}, login="ann", routes=ROUTES) as site:
            for name, value in (("X-Requested-With", "mq"), ("Accept", "text/event-stream")):
                assert (await site.get("/")).status == 200
                now[0] += 20 * 60
                assert (await asked(site, {name: value})).status == 200
                now[0] += 20 * 60
                assert (await site.get("/")).status == 303
                await site.log_in("ann")

    asyncio.run(main())


def test_a_first_account_that_could_not_be_written_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users.json"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_all", full)
        with pytest.raises(CannotWrite):
            add_user(path, "ann", "reader")
    assert accounts.read(path).users == {}
    add_user(path, "ann", "reader")
    assert list(accounts.read(path).users) == ["ann"]
    assert path.stat().st_mode & 0o777 == 0o600
