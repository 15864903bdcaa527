"""The cost of a snode: `python -m bench.snode --rounds 3 --seconds 4`.

Starts `mq namesrv`, `mq broker` and `mq snode`, and sends alternately to the broker directly and
through the snode: at full speed (8 connections, 128 in flight), and at a constant rate with one in
flight, for the latency. The figures of a round are measured in succession, so that other load of
the machine affects both.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.push import cpu_seconds, start

TOPIC = "Sent"


def measure(name_server: str, seconds: float, *words: str) -> dict[str, float]:
    """Return the output of `mq bench produce`; a snode is the name server of its clients."""
    command = [sys.executable, "-m", "mq", "bench", "produce", "-t", TOPIC, "-n", name_server]
    command += ["-d", str(seconds), "-p", "1", "-o", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)["data"][0]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rate", type=int, default=500, help="of the sends for the latency")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pids: dict[str, int] = {}
        address = r"address ([0-9.:]+)"
        common = {"listenPort": "0", "bindAddress": "127.0.0.1"}
        namesrv = start(stack, folder, pids, "namesrv", address,
                        kvConfigPath=str(folder / "kv.json"), **common)  # fmt: skip
        start(stack, folder, pids, "broker", r"broker\[[^,]+, ([0-9.:]+)\] boot",
              storePathRootDir=str(folder / "store"), brokerIP1="127.0.0.1",
              namesrvAddr=namesrv, **common)  # fmt: skip
        snode = start(stack, folder, pids, "snode", r"snode\[[^,]+, ([0-9.:]+)\] boot",
                      snodeIP1="127.0.0.1", namesrvAddr=namesrv, metricsEnable="false",
                      **common)  # fmt: skip
        make = ["updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", TOPIC]
        subprocess.run([sys.executable, "-m", "mq", *make, "-r", "8", "-w", "8"],
                       check=True, capture_output=True)  # fmt: skip
        ratios, added, costs = [], [], []
        fast = ("-s", str(options.size), "-c", "8", "-w", "128")
        slow = ("-s", str(options.size), "-c", "2", "-w", "1", "-r", str(options.rate))
        for _ in range(options.rounds):
            direct = measure(namesrv, options.seconds, *fast)
            before = cpu_seconds(pids["snode"])
            through = measure(snode, options.seconds, *fast)
            used = cpu_seconds(pids["snode"]) - before
            costs.append(used / (through["messagesPerSecond"] * (options.seconds + 1)) * 1e6)
            ratios.append(through["messagesPerSecond"] / direct["messagesPerSecond"])
            p50 = [measure(at, options.seconds, *slow)["p50Ms"] for at in (namesrv, snode)]
            added.append(p50[1] - p50[0])
            print(
                f"direct {direct['messagesPerSecond']:,.0f}/s, through the snode "
                f"{through['messagesPerSecond']:,.0f}/s ({ratios[-1]:.0%}, {costs[-1]:.1f} us of "
                f"the snode's processor each), p50 {p50[0]:.2f} ms and {p50[1]:.2f} ms"
            )
        print(f"median: {median(ratios):.0%} of the rate, {median(added):.2f} ms more at p50")


if __name__ == "__main__":
    main()
