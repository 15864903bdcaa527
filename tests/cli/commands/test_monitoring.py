import json
import signal
import subprocess
import sys

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from mq.protocol.names import retry_topic
from tests.cli.members import member
from tests.cli.pairs import DEAD, dead_broker
from tests.cli.support import Mq


def test_groups_are_watched_until_ctrl_c(cluster: Mq, standalone: Standalone) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Watched", "-r", "1", "-w", "1")
    cluster("sendMessage", "-t", "Watched", "-p", "x")
    command = [sys.executable, "-m", "mq", "startMonitoring", "--interval", "0"]
    environment = {"PATH": "", **cluster.variables}
    with member(standalone, "WatchedGroup", "Watched"):
        with BlockingSession(standalone.name_server_address) as session:
            address = standalone.broker.address
            run(Admin(session).update_consumer_offset(address, "WatchedGroup", "Watched", 0, 1))
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            while "endRound" not in lines[-1]:
                lines.append(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            process.communicate()
        assert process.returncode == 0
        with subprocess.Popen(
            [*command, "-o", "json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            document = json.loads(process.stdout.readline())
            process.kill()
            process.communicate()
    assert lines[0] == "[MONITOR] =========================================beginRound\n"
    assert (
        "[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup=WatchedGroup, topic=Watched, "
        "undoneMsgsTotal=0, undoneMsgsSingleMQ=0, undoneMsgsDelayTimeMills=0]\n"
    ) in lines
    rows = [row for row in document["data"] if row["group"] == "WatchedGroup"]
    assert {row["topic"] for row in rows} >= {"Watched"}
    assert {row["kind"] for row in rows} == {"undone"}


def test_a_group_of_which_a_broker_does_not_say_how_it_does_is_told(
    cluster: Mq, standalone: Standalone
) -> None:
    command = [sys.executable, "-m", "mq", "startMonitoring", "--interval", "0"]
    environment = {"PATH": "", **cluster.variables}
    with (
        dead_broker(standalone.name_server_address, retry_topic("Unsaid")),
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        while "endRound" not in lines[-1]:
            lines.append(process.stdout.readline())
        process.kill()
        process.communicate()
    assert [line for line in lines if "Unsaid" in line] == [
        f"[MONITOR]  [NOTIFY] ConsumerGroup: Unsaid, {DEAD}: Connection refused\n"
    ]


def test_an_interval_below_zero_is_refused(cluster: Mq) -> None:
    assert cluster("startMonitoring", "--interval", "-1").status == 64
