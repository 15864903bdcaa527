"""Name servers and brokers fail in rounds, among clients that send and consume all the time.

After each round every topic has its route within two seconds, every client continues by itself, and
no message was lost, disordered, or consumed twice unless that is allowed (see `faults.book`).

`make test-long` runs 200 rounds, MQ_TEST_ROUNDS sets another number; the suite runs a few, without
Java. MQ_TEST_SEED repeats the faults of a run, which prints its seed.
"""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from tests.interop.jvm import require_java
from tests.system.faults.rounds import Rounds

IS_LONG = bool(os.environ.get("MQ_TEST_LONG"))
SEED = int(os.environ.get("MQ_TEST_SEED") or (random.randrange(1 << 32) if IS_LONG else 11))
ROUNDS = int(os.environ.get("MQ_TEST_ROUNDS", 200))
SHORT_ROUNDS = 2
ROUND_LIMIT = 120  # seconds; one takes seven


def run(folder: Path, rounds: int, *, java_servers: bool, java_clients: bool) -> None:
    async def scenario() -> None:
        begin = time.monotonic()
        print(f"\nMQ_TEST_SEED={SEED}")
        cluster = Rounds(folder, SEED, java_servers=java_servers, java_clients=java_clients)
        book = cluster.book
        try:
            async with cluster:
                for _ in range(rounds):
                    print(await cluster.run(), flush=True)
                    if book.faults:
                        break
                await cluster.finish()
        except Exception as error:
            book.blame(f"{type(error).__name__}: {error}")
            print(book.timeline())
            raise
        print(f"{cluster.report()}; {time.monotonic() - begin:.0f} s")
        missed = "\n".join(book.faults[:10])
        assert not book.faults, f"MQ_TEST_SEED={SEED}:\n{missed}\n{book.timeline()}"

    asyncio.run(scenario())


@pytest.mark.timeout(60 + SHORT_ROUNDS * ROUND_LIMIT)
@pytest.mark.skipif(IS_LONG, reason="the long ones have more of it")
def test_a_few_faults_lose_nothing_and_stop_no_client(tmp_path: Path) -> None:
    run(tmp_path, SHORT_ROUNDS, java_servers=False, java_clients=False)


@pytest.mark.java
@pytest.mark.timeout(60 + ROUNDS * ROUND_LIMIT)
@pytest.mark.long
def test_faults_lose_nothing_and_stop_no_client(tmp_path: Path) -> None:
    require_java()
    run(tmp_path, ROUNDS * 3 // 4, java_servers=False, java_clients=True)


@pytest.mark.java
@pytest.mark.timeout(60 + ROUNDS * ROUND_LIMIT)
@pytest.mark.long
def test_faults_among_java_servers_lose_nothing_and_stop_no_client(tmp_path: Path) -> None:
    require_java()
    run(tmp_path, ROUNDS - ROUNDS * 3 // 4, java_servers=True, java_clients=True)
