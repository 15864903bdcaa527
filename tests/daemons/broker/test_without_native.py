"""A broker without the native path: the same tests once more in Python."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mq.protocol.native import native

HERE = Path(__file__).parent
# CPU seconds of each, for code that is the same Python with the native path.
SAME = (
    *("filters_of_held_pulls_are_counted", "most_messages_of_a_request", "the_hash_of_a_key"),
    "fewer_messages_the_more_each_of_them_costs",
)
TAKEN_OVER = (
    *("send/test_send_handlers.py", "send/test_batches.py"),
    *("pull/test_pull_handlers.py", "pull/test_cold_pulls.py"),
    *("pull/test_long_polling.py", "pull/test_message_finder.py"),
    "filters/test_pull_filters.py",
    "filters/test_bit_maps.py",
    "transactions/test_many_at_once.py",
    *("store/log/test_append.py", "store/test_refused_appends.py", "store/test_packed.py"),
    *("store/log/test_flush.py", "store/index/test_index.py"),
)


@pytest.mark.timeout(600)  # 300 tests; one of them that hangs ends after 60 s and is named
@pytest.mark.skipif(native is None, reason="the native path is not built: the others ran so")
def test_sends_pulls_and_the_store_behave_the_same_without_it() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "timeout=60"]
    command += ["-k", f"not ({' or '.join(SAME)})", *(str(HERE / name) for name in TAKEN_OVER)]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    ended = subprocess.run(
        command, env={**environment, "MQ_NATIVE": "0"}, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
