from tests.cli.commands.sent import indexed, make, send
from tests.cli.support import Mq


def test_a_trace_shows_who_sent_the_message(cluster: Mq) -> None:
    make(cluster, "Traced")
    sent = send(cluster, "Traced", "x", "-k", "k", "-m", "true")
    (row,) = indexed(cluster, 1, "queryMsgTraceById", "-i", sent["messageId"])
    assert (row["type"], row["topic"], row["success"]) == ("Pub", "Traced", True)
    assert row["clientHost"] == "127.0.0.1"
    plain = cluster("queryMsgTraceById", "-i", sent["messageId"]).out
    assert plain.startswith("#Type      #ProducerGroup       #ClientHost ")
    assert plain.endswith("success   \n\n")


def test_a_message_without_a_trace_is_not_found(cluster: Mq) -> None:
    make(cluster, "Untraced")
    sent = send(cluster, "Untraced", "x", "-m", "true")  # so that the trace topic is there
    indexed(cluster, 1, "queryMsgTraceById", "-i", sent["messageId"])
    finished = cluster("queryMsgTraceById", "-i", "0" * 32)
    assert (finished.status, finished.out) == (66, "")
    assert "no trace of message" in finished.err
