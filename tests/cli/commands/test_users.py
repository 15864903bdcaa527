import io

import pytest

from mq.cli.commands.users import secret
from mq.cli.runtime.errors import UsageError
from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

AUTH = [
    ("createUser", "-u", "alice", "-p", "alice_secret"),
    ("updateUser", "-u", "alice", "-s", "disable"),
    ("deleteUser", "-u", "alice"),
    ("getUser", "-u", "alice"),
    ("listUser",),
    ("createAcl", "-s", "User:alice", "-r", "Topic:T", "-a", "Pub", "-d", "Allow"),
    ("updateAcl", "-s", "User:alice", "-r", "Topic:T", "-a", "Pub", "-d", "Deny"),
    ("deleteAcl", "-s", "User:alice"),
    ("getAcl", "-s", "User:alice"),
    ("listAcl",),
]


@pytest.mark.parametrize("words", AUTH, ids=lambda words: words[0])
def test_a_broker_without_users_is_said_to_be_older(
    words: tuple[str, ...], cluster: Mq, standalone: Standalone
) -> None:
    for where in (("-b", standalone.broker.address), ("-c", "DefaultCluster")):
        finished = cluster(*words, *where)
        assert (finished.status, finished.out) == (69, "")
        assert finished.err.splitlines()[0] == (
            f"mq {words[0]}: {standalone.broker.address}: the broker is older than RocketMQ 5, "
            f"which {words[0]} needs"
        )
    neither = cluster(*words)
    assert neither.status == 64


@pytest.mark.parametrize("command", ["copyUser", "copyAcl"])
def test_copying_from_an_older_broker_says_so(
    command: str, cluster: Mq, standalone: Standalone
) -> None:
    address = standalone.broker.address
    finished = cluster(command, "-f", address, "-t", address)
    assert (finished.status, finished.out) == (69, "")
    assert f"older than RocketMQ 5, which {command} needs" in finished.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("createUser", "-u", "a", "-p", "b", "-t", "King"), "-t/--userType: 'King' is not one of"),
        (("updateUser", "-u", "a", "-s", "maybe"), "-s/--userStatus: 'maybe' is not one of"),
        (("updateUser", "-u", "a"), "nothing to change"),
        (("createUser", "-u", "a"), "-p/--password is required"),
        (("createUser", "-u", "a", "-p", "-"), "standard input has no line"),
        (
            ("createAcl", "-s", "User:a", "-r", "Topic:T", "-a", "Write", "-d", "Allow"),
            "--actions: 'Write' is not one of All, Any, Pub",
        ),
        (("createAcl", "-s", "User:a", "-r", ",", "-a", "Pub", "-d", "Allow"), "at least one"),
        (("createAcl", "-s", "User:a", "-r", "T", "-a", "Pub", "-d", "Perhaps"), "-d/--decision"),
    ],
)
def test_what_a_broker_would_misread_is_refused(
    words: tuple[str, ...], complaint: str, cluster: Mq
) -> None:
    finished = cluster(*words, "-c", "DefaultCluster")
    assert (finished.status, finished.out) == (64, "")
    assert complaint in finished.err


def test_a_secret_is_read_from_standard_input() -> None:
    class Environment:
        stdin = io.StringIO("from a file\n")

    class Call:
        environment = Environment()

    assert secret(Call(), "-") == "from a file"  # type: ignore[arg-type]
    assert secret(Call(), "given") == "given"  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        secret(Call(), "-")  # type: ignore[arg-type]
