import pytest

from mq.client.namespace import with_namespace, without_namespace


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("Orders", "shop%Orders"),
        ("%RETRY%billing", "%RETRY%shop%billing"),
        ("%DLQ%billing", "%DLQ%shop%billing"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_anything", "rmq_sys_anything"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_names_get_and_lose_the_namespace(short: str, full: str) -> None:
    assert with_namespace("shop", short) == full
    assert without_namespace("shop", full) == short


def test_a_full_name_stays_as_it_is() -> None:
    assert with_namespace("shop", "shop%Orders") == "shop%Orders"


def test_names_of_other_namespaces_stay_as_they_are() -> None:
    assert without_namespace("shop", "%RETRY%store%billing") == "%RETRY%store%billing"


@pytest.mark.parametrize("none", [None, ""])
def test_without_a_namespace_nothing_changes(none: str | None) -> None:
    assert with_namespace(none, "Orders") == without_namespace(none, "Orders") == "Orders"
