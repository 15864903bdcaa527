"""The API of a console under schemathesis, by an account of each role."""

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mq.client.producer.producer import Producer
from mq.daemons.console.call import Call
from mq.daemons.console.pages import all_routes
from mq.daemons.console.permissions import ROLES
from mq.daemons.console.route import AnyRoute, Change
from mq.daemons.console.security import accounts
from mq.daemons.console.web import Frame
from mq.protocol.message import Message
from tests.daemons.console.site import Consoles, Site, account

# A body over 1 MB is refused for its length: its values are not checked.
CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx"]
"""
# Whether a value is valid may depend on the cluster, which is not part of the schema.
CHECKS_LEFT_OUT = "positive_data_acceptance"
# A stream ends when its client disconnects: test_streams.py reads them.
STREAMS = "/(events|news)$"


def narrowed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a description in which changes name the existing cluster: any other is refused."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for media in operation.get("requestBody", {}).get("content", {}).values():
                properties = media["schema"]["anyOf"][0]["properties"]
                if "cluster" in properties:
                    properties["cluster"] = {"enum": ["DefaultCluster"]}
    return document


async def parameters(site: Site) -> dict[str, str]:
    """Return path parameters of existing subjects, among them a message."""
    async with Producer(site.pair.name_server_address, "p") as producer:
        sent = await producer.send(Message("Orders", b"a lamp", keys=["42"], tags="new"))
    queue = sent.queue
    return {
        "topic": "Orders",
        "group": "shop",
        "name": queue.broker_name,
        "broker": queue.broker_name,
        "id": "0",
        "queue": str(queue.queue_id),
        "offset": str(sent.queue_offset),
        "kind": "broker",
        "address": site.pair.name_server_address,
    }


async def token_of(site: Site, role: str) -> str:
    token, kept = accounts.new_token()
    with accounts.changing(site.console.settings.console.users_path) as found:
        found.tokens["fuzzing"] = replace(account("fuzzing", role), secret=kept)
    site.console.reload()
    return token


def run(
    folder: Path, site: Site, token: str, document: dict[str, Any], known: dict[str, str]
) -> tuple[int, str]:
    """Exit status and output of schemathesis."""
    schema, config = folder / "openapi.json", folder / "schemathesis.toml"
    schema.write_text(json.dumps(document))
    lines = [f'"path.{name}" = {json.dumps(value)}' for name, value in known.items()]
    config.write_text("\n".join(["[parameters]", *lines, CONFIG]))
    command = [str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(config)]
    command += ["run", str(schema), "--url", site.origin, "-H", f"Authorization: Bearer {token}"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "25", "--no-color"]
    command += ["--exclude-checks", CHECKS_LEFT_OUT, "--exclude-path-regex", STREAMS]
    command += ["--continue-on-failure", "--request-timeout", "60", "--warnings", "off"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("role", ROLES)
def test_every_answer_of_the_api_is_described(
    role: str, console: Consoles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: set[str] = set()
    call = Frame.call

    def noted(frame: Frame, asked: Any, route: AnyRoute, given: Any = None) -> Call:
        made = call(frame, asked, route, given)
        reached.add(route.path)  # not refused
        return made

    async def main() -> None:
        async with console(users={"ann": "administrator"}) as site:
            token = await token_of(site, role)
            known = await parameters(site)
            monkeypatch.setattr(Frame, "call", noted)
            found = (await site.api("/api/v1/openapi.json", token=token)).json
            document = narrowed(found)
            status, output = await asyncio.to_thread(run, tmp_path, site, token, document, known)
            assert status == 0, output

    asyncio.run(main())
    changes = [route for route in all_routes() if isinstance(route, Change)]
    allowed = {route.path for route in changes if route.needs <= ROLES[role]}
    assert reached & {route.path for route in changes} == allowed
