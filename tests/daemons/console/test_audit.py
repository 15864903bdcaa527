"""The audit: its content, and no change without it."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.machine import files
from mq.client.operations.errors import CannotWrite
from mq.daemons.console import audit as audit_module
from mq.daemons.console.audit import Audit
from mq.daemons.console.pages import audit
from mq.daemons.console.pages.audit import search
from mq.daemons.console.security.accounts import Account
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles, account


def test_a_change_is_written_down_before_and_after(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES, users={"ann": "administrator"}, login="ann") as site:
            address = site.pair.broker.address
            await site.change(f"/create/{address}", {"topic": "Orders"})
            before, after = (e for e in site.audit if e["what"] == "change")
            assert before["user"] == "ann"
            assert before["address"] == "127.0.0.1"
            assert before["cluster"] == "test"
            assert before["command"] == "mq updateTopic -t Orders"
            assert before["parameters"] == {"topic": "Orders"}
            assert (before["state"], after["state"]) == ("begins", "done")
            assert before["preview"] == after["preview"]
            assert after["results"] == [{"target": address, "ok": True, "text": "created"}]
            path = site.console.settings.console.audit_path
            assert path.stat().st_mode & 0o777 == 0o600

    asyncio.run(main())


def test_what_fails_is_written_down_with_its_cause(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            address = site.pair.broker.address
            preview = await site.submit(await site.get(f"/create/{address}"), {"topic": "Orders"})
            await site.pair.broker.__aexit__(None, None, None)
            result = await site.submit(preview)
            assert result.tables()[0][0][1] == "failed"
            assert site.audit[-1]["state"] == "failed"
            assert address in site.audit[-1]["results"][0]["text"]

    asyncio.run(main())


def test_without_the_audit_nothing_is_changed(
    console: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            path = f"/create/{site.pair.broker.address}"
            preview = await site.submit(await site.get(path), {"topic": "Orders"})
            site.console.audit.reopen()
            log = site.console.settings.console.audit_path
            log.unlink(missing_ok=True)
            log.mkdir()  # like a full disk, it prevents the writing of lines
            refused = await site.submit(preview)
            assert refused.status == 503
            assert "cannot write the audit" in refused.text
            topics = (await Admin(site.here.session).topic_list()).topic_list
            assert "Orders" not in topics

    asyncio.run(main())


def test_a_renamed_file_is_left_alone_behind_a_reload(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            await site.get("/bodies/Orders")
            log = site.console.settings.console.audit_path
            log.rename(log.with_name("old"))
            site.console.reload()
            await site.get("/bodies/Other")
            assert [e["target"] for e in site.audit] == ["Other"]
            assert len(log.with_name("old").read_text().splitlines()) == 1

    asyncio.run(main())


def test_a_line_that_was_cut_off_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = Audit(tmp_path / "audit")
    audit.note({"n": 1})
    whole = files.pwrite

    def short(descriptor: int, data: bytes, position: int) -> int:
        whole(descriptor, data[:5], position)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "pwrite", short)
    with pytest.raises(CannotWrite, match="No space left"):
        audit.note({"n": 2})
    monkeypatch.setattr(files, "pwrite", whole)
    audit.note({"n": 3})
    audit.close()
    with (tmp_path / "audit").open("ab") as file:
        file.write(b'{"n": 4')  # killed within a line
    again = Audit(tmp_path / "audit")
    again.note({"n": 5})
    found = search(tmp_path / "audit", lambda entry: True, 10)
    assert [line.entry["n"] for line in found.lines] == [5, 3, 1]
    assert found.older is None


def test_the_log_is_read_from_its_end_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "BLOCK", 7)
    path = tmp_path / "audit"
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(100)))
    seen: list[int] = []
    before = None
    while True:
        found = search(path, lambda entry: entry["n"] % 2 == 0, 7, before)
        seen += [int(line.entry["n"]) for line in found.lines]
        before = found.older
        if before is None:
            break
    assert seen == list(range(98, -1, -2))


def test_a_page_of_the_log_looks_at_so_much_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MAX_BYTES", 50)
    path = tmp_path / "audit"
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(1000)))
    found = search(path, lambda entry: entry["n"] == 0, 7)
    assert found.lines == () and not found.whole and found.older is not None
    for _ in range(1000):
        if found.older is None or found.lines:
            break
        found = search(path, lambda entry: entry["n"] == 0, 7, found.older)
    assert [line.entry["n"] for line in found.lines] == [0]


def test_the_page_filters_and_shows_text_as_text(console: Consoles) -> None:
    evil = '"><img src=x onerror=alert(1)>\u202e{{7*7}}'

    async def main() -> None:
        async with console(routes=ROUTES, users={"ann": "administrator"}, login="ann") as site:
            site.console.audit.note(
                {"what": "change", "user": evil, "cluster": "test", "text": evil}
            )
            site.console.audit.note({"what": "change", "user": "x", "cluster": "other"})
            page = await site.get("/operations?what=change")
            assert page.soup.find("img") is None
            assert "\u202e" not in page.text and "49" not in page.tables()[0][0][6]
            assert len(page.tables()[0]) == 1
            assert len((await site.get("/operations?user=ann")).tables()[0]) >= 1
            assert (await site.get("/operations?before=x")).status == 400
            assert (await site.api("/operations?what=login")).json["entries"][0]["user"] == "ann"

    asyncio.run(main())


def test_a_change_of_thousands_is_in_the_log_with_what_failed(tmp_path: Path) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    results = [{"target": f"letter {n}" * 10, "ok": n != 4000, "text": "sent"} for n in range(5000)]
    plan = [f"send {n}" * 100 for n in range(1000)]
    audit.note({"what": "change", "state": "failed", "plan": plan, "results": results})
    audit.close()
    (line,) = search(audit.path, lambda entry: True, 10).lines
    assert line.entry["state"] == "failed"
    assert line.entry["results"][0]["target"].startswith("letter 4000")
    assert "more: too long for a line" in line.entry["results"][-1]
    assert audit.path.stat().st_size < audit_module.MAX_LINE


def test_a_file_is_not_closed_while_a_thread_has_to_do_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    waiting, go_on = threading.Event(), threading.Event()

    def slowly(descriptor: int) -> None:
        waiting.set()
        go_on.wait()
        os.fdatasync(descriptor)  # fails if the file was closed, or syncs another one
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(files, "fdatasync", slowly)

    async def main() -> None:
        audit = Audit(tmp_path / "audit.jsonl")
        recording = asyncio.create_task(audit.record({"what": "change"}))
        await asyncio.to_thread(waiting.wait)
        written = audit.path.stat().st_ino
        audit.path.rename(tmp_path / "old.jsonl")
        audit.reopen()
        audit.note({"what": "login"})  # not delayed by the disk
        go_on.set()
        await recording
        assert synced == [written]
        assert not audit._given_up
        audit.close()
        for name, what in (("old", "change"), ("audit", "login")):
            text = (tmp_path / f"{name}.jsonl").read_text()
            assert [json.loads(line)["what"] for line in text.splitlines()] == [what]

    asyncio.run(main())


def test_a_new_file_is_there_after_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[object] = []
    monkeypatch.setattr(files, "sync_folder", folders.append)

    async def main() -> None:
        audit = Audit(tmp_path / "audit.jsonl")
        await audit.record({"what": "change"})
        assert tmp_path in folders
        audit.close()

    asyncio.run(main())


def test_who_may_see_some_topics_alone_gets_their_own_lines(console: Consoles) -> None:
    limited = account("bob", topics=("mine*",))

    async def main() -> None:
        users: dict[str, str | Account] = {"ann": "administrator", "bob": limited}
        async with console(routes=ROUTES, users=users, login="ann") as site:
            await site.change(f"/create/{site.pair.broker.address}", {"topic": "Payroll"})
            assert "Payroll" in (await site.get("/operations")).text
            bob = site.browser()
            await bob.log_in("bob")
            assert (await bob.get("/topics-of/Else")).status == 403
            page = await bob.get("/operations")
            assert "Payroll" not in page.text
            # without a cluster: the client and its address
            assert "/topics-of/Else" not in page.text
            assert page.status == 200

    asyncio.run(main())
