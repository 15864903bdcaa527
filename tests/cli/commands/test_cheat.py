import pytest

from mq.cli import catalog
from mq.cli.main import load
from mq.cli.manual.examples import of
from tests.cli.support import Mq


@pytest.mark.parametrize("subject", catalog.GROUPS)
def test_a_subject_has_all_examples_of_its_commands(subject: str, mq: Mq) -> None:
    page = mq("cheat", subject).out
    for name in catalog.GROUPS[subject]:
        for command, words in of(load(subject, name).function):
            assert f"  {command}" in page
            assert words.split()[0] in page


def test_groups_have_what_one_does_with_their_offsets(mq: Mq) -> None:
    assert "mq resetOffsetByTime billing Orders 1h" in mq("cheat", "group").out
    assert mq("cheat", "group").out == mq("cheat", "groups").out == mq("cheat", "consumer").out


def test_a_command_has_its_own_examples(mq: Mq) -> None:
    lines = mq("cheat", "tail").out.splitlines()
    assert lines[0] == "Messages:"
    assert all(line.startswith(("  mq tail Orders", "      ")) for line in lines[1:])


def test_without_a_subject_every_command_has_its_first_example(mq: Mq) -> None:
    rows = mq("cheat", "-o", "json").json["data"]
    assert [row["command"] for row in rows] == [
        name for names in catalog.GROUPS.values() for name in names
    ]
    assert {"subject", "command", "example", "description"} == set(rows[0])


def test_a_page_in_a_pipe_is_plain_text_and_fits(mq: Mq) -> None:
    page = mq("cheat", "offset").out
    assert "\x1b" not in page
    assert all(len(line) <= 80 for line in page.splitlines())
    assert page == mq("cheat", "offset", terminal=True, NO_COLOR="1").out


def test_a_subject_that_there_is_not_is_answered_with_near_ones(mq: Mq) -> None:
    finished = mq("cheat", "ofset")
    assert finished.status == 64
    assert finished.err == "mq cheat: no subject 'ofset'\nhint: did you mean offset?\n"
