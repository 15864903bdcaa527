"""A row per request code: every code has one, and what it says holds together."""

import pytest

from mq.protocol import bodies
from mq.protocol.bodies.schema import Body
from mq.protocol.codes import Dialect, RequestCode, SnodeCode
from mq.protocol.headers import HEADERS, SNODE_HEADERS
from mq.protocol.requests import (
    BROKER,
    CLIENT,
    FILTER_SERVER,
    NAME_SERVER,
    READ,
    REQUESTS,
    SNODE,
    SNODE_REQUESTS,
    WRITE,
    NamedIn,
    Request,
    answered_by,
    kind_of,
)
from tests.daemons.broker.acl.guarded import BODIES

ROWS = [*REQUESTS.values(), *SNODE_REQUESTS.values()]
# Words in the name of a code that changes something.
VERBS = set(
    "UPDATE CREATE DELETE CLEAN RESET PUT REGISTER SEND LOCK WIPE ADD REMOVE SET ACK".split()
)


def test_every_code_has_one_row_in_the_order_of_the_codes() -> None:
    assert [row.code for row in REQUESTS.values()] == list(RequestCode)
    assert [row.code for row in SNODE_REQUESTS.values()] == list(SnodeCode)


def test_who_is_asked_on_any_connection_gives_each_number_one_meaning() -> None:
    for role in (BROKER, NAME_SERVER, CLIENT, SNODE):
        numbers = [int(row.code) for row in answered_by(role)]
        assert len(numbers) == len(set(numbers)), role


def test_a_broker_is_asked_351_and_355_of_snodes_in_their_dialect_only() -> None:
    named = {int(row.code): row.code.name for row in answered_by(BROKER)}
    assert (named[351], named[355]) == ("GET_TOPIC_CONFIG", "EXPORT_ROCKSDB_CONFIG_TO_JSON")
    of_snodes = {int(row.code): row.code.name for row in answered_by(BROKER, Dialect.SNODE)}
    assert of_snodes == {351: "SNODE_PULL_MESSAGE", 355: "CREATE_RETRY_TOPIC"}


def test_a_number_of_snodes_is_judged_by_its_meaning_there() -> None:
    assert kind_of(RequestCode(353)) is WRITE
    assert kind_of(SnodeCode(353)) is READ


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code.name)
def test_what_a_row_names_is_there(row: Request) -> None:
    if row.body:
        assert issubclass(getattr(bodies, row.body), Body)
    for right in row.rights or ():
        assert row.answered_by & (BROKER | FILTER_SERVER | SNODE)
        if right.named_in is NamedIn.HEADER:
            headers = SNODE_HEADERS if row.dialect is Dialect.SNODE else HEADERS
            assert right.attribute in {field.name for field in headers[row.code].FIELDS}
        else:
            assert right.attribute == ""


def test_no_code_that_changes_something_counts_as_a_read() -> None:
    reads = [row.code.name for row in ROWS if row.kind is READ]
    assert [name for name in reads if VERBS & set(name.split("_"))] == []


def test_what_a_row_does_not_say_is_the_strictest() -> None:
    row = Request(RequestCode.SEND_MESSAGE)
    assert (row.kind, row.needs) == (WRITE, "an administrator")
    assert kind_of(99_999) is WRITE


def test_what_puts_off_the_expiry_of_a_broker_is_a_write_everywhere() -> None:
    # It was a read to dry runs and a write to name servers: the stricter one counts.
    assert kind_of(RequestCode.QUERY_DATA_VERSION) is WRITE


def test_the_tests_of_permissions_send_a_body_wherever_rights_depend_on_it() -> None:
    in_bodies = {
        row.code
        for row in answered_by(BROKER)
        if any(right.named_in is NamedIn.BODY for right in row.rights or ())
    }
    assert in_bodies == BODIES.keys()
    assert all(REQUESTS[code].body for code in in_bodies)
