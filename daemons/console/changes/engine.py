"""Makes changes in two steps, so that only previewed requests are sent.

preview   the page plans; then it runs with a session that only records (`mq … --dry-run`) confirm
the hash of the preview, within five minutes, once, by the same user for the same
          address; the session sends the requests that the preview recorded, and no others
audit     a line before it (without which nothing is done) and a line with the results
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mq.client.errors import MQError
from mq.client.machine import clock
from mq.client.operations import masking
from mq.client.operations.errors import OperationError
from mq.daemons.console.audit import Audit
from mq.daemons.console.call import Call
from mq.daemons.console.changes.pending import (
    PREVIEW_SECONDS,
    RESULT_SECONDS,
    PendingStore,
    Preview,
    Result,
    preview_hash,
)
from mq.daemons.console.changes.recorder import Allowance, Recorder, shown_request
from mq.daemons.console.guarded_session import Forbidden, recording
from mq.daemons.console.problems import Refused, problem_of
from mq.daemons.console.route import Change, Field, Outcome, Plan
from mq.daemons.console.security.visitors import new_id

SHOWN = 200  # requests of a preview that are kept as text
STOP_SECONDS = 0.5  # for the audit entry of a cancelled change
KEY_BYTES = 300  # estimated memory of one allowed request


class Engine:
    """The changes of one console."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._previews = PendingStore()
        self._results = PendingStore()
        self._making: set[asyncio.Task[Result]] = set()

    async def stop(self) -> None:
        """Cancel the changes in progress; the audit records it."""
        for task in self._making:
            task.cancel()
        if self._making:
            await asyncio.wait(set(self._making), timeout=STOP_SECONDS)

    async def preview(
        self, change: Change, call: Call, visitor: str, path: str, values: Mapping[str, Any]
    ) -> Preview:
        """Plan the change. Raises the errors of `plan` and `perform`."""
        self._check(change, call)
        if change.check is not None:
            change.check(call, values)
        plan = await change.plan(call, values)
        recorder = Recorder()
        session = call.cluster.changing(call.user, change.needs, recording(recorder))
        try:
            outcomes = await change.perform(call, values, session)
        finally:
            await session.close()
        failed = [one for one in outcomes if not one.ok]
        if failed and not recorder:
            raise OperationError(f"{failed[0].target}: {failed[0].text}")
        requests = tuple(shown_request(one) for one in recorder.kept[:SHOWN])
        total = sum(recorder.counts.values())
        content = {
            "user": call.user.name,
            "cluster": call.cluster.name,
            "path": path,
            "values": values,
            "plan": plan.lines,
            "requests": requests,
        }
        preview = Preview(
            hash=preview_hash(content),
            user=call.user.name,
            visitor=visitor,
            cluster=call.cluster.name,
            path=path,
            values=values,
            plan=plan,
            requests=requests,
            unshown=total - len(requests),
            keys=recorder.keys,
            destroys=change.destroys(call, values) if change.destroys else "",
            expires=clock.monotonic() + PREVIEW_SECONDS,
            size=_size(values, plan, requests, len(recorder.keys)),
        )
        self._previews.put(preview.hash, preview)
        return preview

    def find(self, hash: str, call: Call, visitor: str, path: str) -> Preview | None:
        """Return a preview that this user may confirm here; it is kept."""
        found = self._previews.get(hash)
        return found if _fits(found, call, visitor, path) else None  # type: ignore[return-value]

    async def confirm(
        self,
        change: Change,
        call: Call,
        visitor: str,
        path: str,
        hash: str,
        typed: str,
        may_still: Callable[[], bool] = lambda: True,
    ) -> Result:
        """Make the previewed change, for as long as its user ``may_still``.

        Raises Refused for a preview that does not exist (any more), and Forbidden; then nothing was
        done.
        """
        self._check(change, call)
        preview = self.find(hash, call, visitor, path)
        if preview is None:
            line = call.text(
                "This preview has expired or was confirmed already: request a new one."
            )
            raise Refused(409, line)
        if preview.destroys and typed != preview.destroys:
            line = call.text("Type %(name)s to confirm.", name=preview.destroys)
            raise Refused(400, line)
        self._previews.take(hash)
        # The change is completed and recorded even if its user disconnects.
        allowance = Allowance(preview.keys, may_still)
        task = asyncio.create_task(self._make(change, call, preview, allowance))
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        return await asyncio.shield(task)

    async def _make(
        self, change: Change, call: Call, preview: Preview, allowance: Allowance
    ) -> Result:
        entry = {**entry_of(call), **_described(change, preview), "what": "change"}
        try:
            await self._audit.record({**entry, "state": "begins"})
            outcomes = await self._outcomes(change, call, preview, allowance)
        except asyncio.CancelledError:
            self._cut_off({**entry, "state": "cut off by the stop"})
            raise
        results = [{"target": o.target, "ok": o.ok, "text": o.text} for o in outcomes]
        state = "done" if all(o.ok for o in outcomes) else "failed"
        if state == "failed" and any(o.ok for o in outcomes):
            state = "partly done"
        await self._finished({**entry, "state": state, "results": results})
        result = Result(
            new_id(),
            call.user.name,
            call.cluster.name,
            call.text(change.about),
            preview.plan,
            outcomes,
            clock.monotonic() + RESULT_SECONDS,
        )
        self._results.put(result.id, result)
        return result

    async def _outcomes(
        self, change: Change, call: Call, preview: Preview, allowance: Allowance
    ) -> tuple[Outcome, ...]:
        session = call.cluster.changing(call.user, change.needs, allowance)
        try:
            return tuple(await change.perform(call, preview.values, session))
        except (OperationError, MQError, OSError) as error:
            problem = problem_of(error, call.id)
            return (Outcome(call.cluster.name, False, problem.line),)
        except Exception as error:
            problem = problem_of(error, call.id)
            return (Outcome(call.cluster.name, False, f"{problem.line} ({call.id})"),)
        finally:
            await session.close()

    def _cut_off(self, entry: Mapping[str, Any]) -> None:
        try:
            self._audit.note(entry)
        except OperationError:
            self._audit.lost(entry)

    async def _finished(self, entry: Mapping[str, Any]) -> None:
        """Record the results; if that fails, log them."""
        try:
            await self._audit.record(entry)
        except OperationError:
            self._audit.lost(entry)

    def result(self, id: str, call: Call) -> Result | None:
        """Return the result of a change of this user."""
        found = self._results.get(id)
        if not isinstance(found, Result):
            return None
        same = found.user == call.user.name and found.cluster == call.cluster.name
        return found if same else None

    def _check(self, change: Change, call: Call) -> None:
        """Raise Forbidden if nothing may be changed; the frame has checked the same before."""
        if call.cluster.read_only:
            raise Forbidden(call.text("This console changes nothing: it is read-only."))
        if not call.may(change.needs):  # the frame has checked the subject
            raise Forbidden(call.text("You may not do this."))


def _size(values: Mapping[str, Any], plan: Plan, requests: Sequence[str], keys: int) -> int:
    """Return the approximate size of a preview in bytes."""
    texts = [*map(str, values.values()), *plan.lines, *requests]
    texts += [str(row) for table in plan.tables for row in table.rows]
    return sum(map(len, texts)) + keys * KEY_BYTES


def entry_of(call: Call) -> dict[str, Any]:
    """Return the fields of a call that every line of the audit has."""
    return {
        "id": call.id,
        "user": call.user.name,
        **({"token": call.user.token} if call.user.token else {}),
        "address": call.client,
        "cluster": call.cluster.name,
    }


def _described(change: Change, preview: Preview) -> dict[str, Any]:
    return {
        "path": preview.path,
        "about": change.about,
        "command": " ".join(("mq", *preview.plan.command)) if preview.plan.command else "",
        "parameters": {
            field.name: _audited(_kind(field, preview.values), preview.values.get(field.name))
            for field in change.fields
            if preview.values.get(field.name) not in (None, False, ())
        },
        "preview": preview.hash,
        "plan": list(preview.plan.lines),
    }


def _kind(field: Field, values: Mapping[str, Any]) -> str:
    """Return the kind of a field in the audit; a setting whose key is secret has a secret value."""
    value = values.get(field.name)
    names = (field.name, str(values.get("key") or "")) if field.name == "value" else (field.name,)
    return "secret" if any(masking.is_secret(name, value) for name in names) else field.kind


MAX_AUDITED = 200  # characters; longer texts are recorded as size and checksum


def _audited(kind: str, value: Any) -> Any:
    """Return a value for the audit: secrets masked, long texts as size and checksum."""
    if kind == "secret":
        return "******"
    text = "\n".join(value) if isinstance(value, tuple) else value
    if isinstance(text, str) and (len(text) > MAX_AUDITED or kind == "body"):
        raw = text.encode("utf-8", "surrogatepass")
        return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return text


def _fits(found: Any, call: Call, visitor: str, path: str) -> bool:
    return isinstance(found, Preview) and (
        found.user,
        found.visitor,
        found.cluster,
        found.path,
    ) == (call.user.name, visitor, call.cluster.name, path)
