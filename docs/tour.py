"""The main use case with real input: every line of a text file is sent as a message and consumed.

    python docs/tour.py [FILE …]

It starts `mq standalone` as a process of its own, does what an administrator and an application
would do, and shows each command with its output. By default the input is this project's own
documentation.
"""

import asyncio
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from mq.client import Consumer, Producer, SendResult
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import Message, StoredMessage

ROOT = Path(__file__).resolve().parents[1]
TOPIC = "Lines"
GROUP = "readers"
READY = re.compile(r"name server ([0-9.]+:\d+)")
IN_FLIGHT = 512


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def mq(*arguments: str) -> None:
    """Run the command `mq` as a user would, and show its output."""
    print(f"$ mq {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "mq", *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(output.rstrip(), flush=True)  # some commands of mqadmin end without a line feed


def start_standalone() -> tuple[subprocess.Popen[str], str]:
    """Start name server and broker on free ports; returns the process and the address."""
    command = ["standalone", "--namesrv-port", "0", "--broker-port", "0"]
    print(f"$ mq {' '.join(command)} &")
    process = subprocess.Popen(
        [sys.executable, "-m", "mq", *command], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        found = READY.search(line)
        if found is not None:
            print(line.rstrip())
            return process, found[1]
    raise SystemExit("mq standalone ended before it was ready")


def read_lines(paths: list[Path]) -> list[tuple[str, str]]:
    """Return (key, text) of every non-blank line of the files; the key is FILE:NUMBER."""
    lines = []
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                lines.append((f"{path.name}:{number}", line))
    return lines


async def send(name_server: str, lines: list[tuple[str, str]]) -> list[SendResult]:
    async with Producer(name_server, "tour") as producer:
        results: list[SendResult] = []
        for start in range(0, len(lines), IN_FLIGHT):
            part = lines[start : start + IN_FLIGHT]
            results += await asyncio.gather(
                *(
                    producer.send(Message(TOPIC, text.encode(), tags="line", keys=[key]))
                    for key, text in part
                )
            )
        return results


async def consume(name_server: str, count: int) -> set[tuple[str, str]]:
    """Consume as a member of a group until `count` different messages have arrived."""
    found: set[tuple[str, str]] = set()
    complete = asyncio.Event()

    async def take(message: StoredMessage) -> None:
        found.add((message.keys[0], message.body.decode()))
        if len(found) == count:
            complete.set()

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    async with Consumer(name_server, GROUP, {TOPIC: "*"}, listener=take, consume_from=first):
        async with asyncio.timeout(60):
            await complete.wait()
    return found


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]] or sorted(
        [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    )
    for path in paths:
        if not path.is_file():
            raise SystemExit(f"{path} is not a file: name a text file, make run FILE=notes.txt")
    lines = read_lines(paths)
    if not lines:
        raise SystemExit("the given files have no line with text")
    began = time.monotonic()
    say("1. A name server and a broker in one process, with a temporary store")
    process, name_server = start_standalone()
    try:
        say("2. A topic")
        mq("updateTopic", "-n", name_server, "-c", "DefaultCluster", "-t", TOPIC)
        mq("topicRoute", "-n", name_server, "-t", TOPIC)
        say(f"3. {len(lines)} lines of {len(paths)} files, one message each, with FILE:LINE as key")
        results = asyncio.run(send(name_server, lines))
        print(f"sent {len(results)} messages, the last as {results[-1].offset_message_id}")
        say(f"4. The group {GROUP} reads them")
        found = asyncio.run(consume(name_server, len(set(lines))))
        assert found == set(lines), "the consumed messages differ from the sent ones"
        print(f"consumed {len(found)} messages, each as it was sent")
        say("5. One of them, by key and by id")
        key = lines[len(lines) // 2][0]
        mq("queryMsgByKey", "-n", name_server, "-t", TOPIC, "-k", key)
        identity = results[len(lines) // 2].offset_message_id
        mq("queryMsgById", "-n", name_server, "-i", identity, "-f", "UTF-8")
        say("6. How far the group is")
        mq("consumerProgress", "-n", name_server, "-g", GROUP)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    took = time.monotonic() - began
    say(
        f"Done in {took:.1f} s: {len(lines)} lines sent, consumed and compared; the broker stopped "
        f"with status {process.returncode}"
    )


if __name__ == "__main__":
    main()
