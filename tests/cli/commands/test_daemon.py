import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Mq


def test_p_prints_every_setting_and_m_the_important_ones(mq: Mq) -> None:
    everything = mq("namesrv", "-p")
    assert everything.status == 0
    assert "listenPort=9876\n" in everything.out
    important = mq("broker", "-m", "-n", "10.0.0.1:9876")
    assert "namesrvAddr=10.0.0.1:9876\n" in important.out
    assert len(mq("broker", "-p").out.splitlines()) > len(important.out.splitlines()) > 3
    assert everything.err == important.err == ""


def test_the_command_line_overrides_the_file(mq: Mq, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=10.0.0.1:9876\nbrokerName=from-file\nlistenPort=20911\n")
    printed = mq("broker", "-c", str(file), "-n", "10.0.0.2:9876", "--set", "brokerName=a/b", "-m")
    assert printed.status == 78
    printed = mq("broker", "-c", str(file), "-n", "10.0.0.2:9876", "--set", "brokerName=b", "-p")
    assert "namesrvAddr=10.0.0.2:9876\n" in printed.out
    assert "brokerName=b\n" in printed.out
    assert "listenPort=20911\n" in printed.out


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("-c", "/nonexistent.conf"), 78, "configuration file /nonexistent.conf: No such file"),
        (("--set", "listenPort=many"), 78, "listenPort=many: expected a whole number"),
        (("--set", "listenPort"), 64, "--set 'listenPort' is not KEY=VALUE"),
        (("-x",), 64, "no such option: -x"),
    ],
)
@pytest.mark.parametrize("command", ["namesrv", "broker"])
def test_what_cannot_start_is_one_line(
    command: str, arguments: tuple[str, ...], status: int, message: str, mq: Mq
) -> None:
    finished = mq(command, *arguments, "-p")
    assert (finished.status, finished.out) == (status, "")
    assert finished.err.startswith(f"mq {command}: {message}")


@pytest.mark.parametrize("command", ["broker", "namesrv", "controller", "snode", "console"])
def test_a_remark_after_a_value_is_named_with_file_and_line(
    command: str, mq: Mq, tmp_path: Path
) -> None:
    file = tmp_path / "my.conf"
    file.write_text("# a comment\nmetricsPort=5557 # for Prometheus\n")
    finished = mq(command, "-c", str(file), "-p")
    assert (finished.status, finished.out) == (78, "")
    assert finished.err == (
        f"mq {command}: {file}, line 2: metricsPort=5557 # for Prometheus: expected a whole "
        "number; a comment needs a line of its own, which starts with #\n"
    )


def test_words_that_java_ignores_do_not_stop_a_daemon(mq: Mq) -> None:
    for line in (
        ("broker", "-n", "10.0.0.1:9876", "autoCreateTopicEnable=true", "-p"),
        ("broker", "autoCreateTopicEnable=true", "-n", "10.0.0.1:9876", "-p"),
        ("namesrv", "-p", "autoCreateTopicEnable=true"),
    ):
        finished = mq(*line)
        assert finished.status == 0
        assert finished.err == (
            f"mq {line[0]}: ignored: 'autoCreateTopicEnable=true'; use --set "
            "autoCreateTopicEnable=true, or the configuration file\n"
        )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("broker", "\u2013n", "x"), "mq: '\u2013n' starts with a dash that is not '-'"),
        (("broker", "--enable-proxy"), "hint: mq has no gRPC proxy"),
        (("broker", "-pc", "x.conf"), "to print the settings of a broker's file use -p -c FILE"),
        (("proxy", "-c", "x"), "hint: mq has no gRPC proxy"),
    ],
)
def test_slips_at_the_start_of_a_broker_get_the_right_answer(
    line: tuple[str, ...], message: str, mq: Mq
) -> None:
    finished = mq(*line)
    assert (finished.status, finished.out) == (64, "")
    assert message in finished.err


def test_standalone_serves_until_it_is_asked_to_stop(tmp_path: Path, mq: Mq) -> None:
    command = [sys.executable, "-m", "mq", "standalone"]
    ports = ["--namesrv-port", "0", "--broker-port", "0", "--store", str(tmp_path / "store")]
    with subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = ""
        registered = False
        for line in process.stdout:
            registered = registered or "registered with name server" in line
            if "mq topicList -n " in line:
                address = line.split("mq topicList -n ")[1].strip()
            if address and registered:
                break
        try:
            assert "TBW102\n" in mq("topicList", "-n", address).out
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert (tmp_path / "store").is_dir()


@pytest.mark.parametrize("daemon", ["namesrv", "broker"])
def test_every_setting_is_in_the_log_at_the_start_and_no_secret(
    tmp_path: Path, daemon: str
) -> None:
    file = tmp_path / "daemon.conf"
    file.write_text(
        "listenPort=0\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nmySecretKey=hidden-one\n"
        "tls.server.keyPassword=hidden-two\ninnerClientAuthenticationCredentials=hidden-three\n"
        f"kvConfigPath={tmp_path}/kv.json\nstorePathRootDir={tmp_path}/store\nodd=a\\nline\n"
    )
    command = [sys.executable, "-m", "mq", daemon, "-c", str(file)]
    printed = subprocess.run([*command, "-p"], capture_output=True, text=True, check=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line.rstrip("\n"))
            if "boot success" in line:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    texts = [line.partition(" mq.daemons.config ")[2] for line in told]
    assert set(printed.stdout.splitlines()) <= set(texts)
    assert "odd=a\\nline (not a setting of this daemon)" in texts
    assert "mySecretKey=****** (not a setting of this daemon)" in texts
    assert "hidden" not in "\n".join(told)
