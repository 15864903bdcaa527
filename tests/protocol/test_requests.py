"""A row per request code: every code has one, and what it says holds together."""

import pytest

from mq.protocol import bodies
from mq.protocol.bodies.schema import Body
from mq.protocol.codes import AnyCode, Dialect, RequestCode, SnodeCode, answered_by, kind_of
from mq.protocol.headers import HEADERS, SNODE_HEADERS
from mq.protocol.requests import (
    BROKER,
    CLIENT,
    FILTER_SERVER,
    NAME_SERVER,
    READ,
    SNODE,
    WRITE,
    NamedIn,
    Role,
    Row,
)
from tests.daemons.broker.acl.guarded import BODIES

CODES: list[AnyCode] = [*RequestCode, *SnodeCode]
# Words in the name of a code that changes something.
VERBS = set(
    "UPDATE CREATE DELETE CLEAN RESET PUT REGISTER SEND LOCK WIPE ADD REMOVE SET ACK".split()
)


@pytest.mark.parametrize("codes", [RequestCode, SnodeCode])
def test_codes_stand_in_their_order(codes: type[AnyCode]) -> None:
    assert list(codes) == sorted(codes)


def test_who_is_asked_on_any_connection_gives_each_number_one_meaning() -> None:
    for role in (BROKER, NAME_SERVER, CLIENT, SNODE):
        numbers = list(map(int, answered_by(role)))
        assert len(numbers) == len(set(numbers)), role


def test_a_broker_is_asked_351_and_355_of_snodes_in_their_dialect_only() -> None:
    named = {int(code): code.name for code in answered_by(BROKER)}
    assert (named[351], named[355]) == ("GET_TOPIC_CONFIG", "EXPORT_ROCKSDB_CONFIG_TO_JSON")
    of_snodes = {int(code): code.name for code in answered_by(BROKER, Dialect.SNODE)}
    assert of_snodes == {351: "SNODE_PULL_MESSAGE", 355: "CREATE_RETRY_TOPIC"}


def test_a_number_of_snodes_is_judged_by_its_meaning_there() -> None:
    assert kind_of(RequestCode(353)) is WRITE
    assert kind_of(SnodeCode(353)) is READ


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_what_a_row_names_is_there(code: AnyCode) -> None:
    if code.body:
        assert issubclass(getattr(bodies, code.body), Body)
    for right in code.rights or ():
        assert code.answered_by & (BROKER | FILTER_SERVER | SNODE)
        if right.named_in is NamedIn.HEADER:
            headers = SNODE_HEADERS if isinstance(code, SnodeCode) else HEADERS
            assert right.attribute in {field.name for field in headers[code].FIELDS}
        else:
            assert right.attribute == ""


def test_no_code_that_changes_something_counts_as_a_read() -> None:
    reads = [code.name for code in CODES if code.kind is READ]
    assert [name for name in reads if VERBS & set(name.split("_"))] == []


def test_what_a_row_does_not_say_is_the_strictest() -> None:
    assert Row(10)[1:] == (WRITE, Role.NOBODY, None, "", "")
    assert RequestCode.UPDATE_BROKER_CONFIG.needs == "an administrator"
    assert kind_of(99_999) is WRITE


def test_what_puts_off_the_expiry_of_a_broker_is_a_write_everywhere() -> None:
    # It was a read to dry runs and a write to name servers: the stricter one counts.
    assert kind_of(RequestCode.QUERY_DATA_VERSION) is WRITE


def test_the_tests_of_permissions_send_a_body_wherever_rights_depend_on_it() -> None:
    in_bodies = {
        code
        for code in answered_by(BROKER)
        if any(right.named_in is NamedIn.BODY for right in code.rights or ())
    }
    assert in_bodies == BODIES.keys()
    assert all(code.body for code in in_bodies)
