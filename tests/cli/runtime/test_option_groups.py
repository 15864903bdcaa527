"""Options that several commands take as one parameter."""

import inspect
from dataclasses import FrozenInstanceError
from typing import Annotated

import pytest
import typer

from mq.cli.runtime.call import Call
from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.option_groups import option_group, spread
from mq.cli.runtime.options import CommandParser


@option_group
class Colours:
    """Of a thing."""

    front: Annotated[str, typer.Option("--front", help="Before.")]
    back: Annotated[int, typer.Option("--back", help="Behind.")] = 3


async def paint(
    call: Call,
    thing: Annotated[str, typer.Option("--thing", help="What.")] = "wall",
    *,
    colours: Colours,
    often: Annotated[int, typer.Option("--often", help="How often.")] = 1,
) -> None:
    """Paint a thing."""


def own_values(*arguments: str) -> dict[str, object]:
    declared = CommandParser("paint", paint)
    values = declared.parse(arguments)
    assert values is not None
    return declared.split(values)[0]


def test_the_options_of_a_group_stand_where_its_parameter_stands() -> None:
    assert CommandParser("paint", paint).own_names == ["thing", "front", "back", "often"]


def test_their_values_come_together_as_the_group() -> None:
    assert own_values("--front", "red", "--often", "2") == {
        "thing": "wall",
        "colours": Colours(front="red"),
        "often": 2,
    }


def test_one_that_is_required_is_missed() -> None:
    with pytest.raises(UsageError, match="--front is required"):
        own_values("--back", "1")


def test_a_question_may_name_them() -> None:
    own = own_values("--front", "red")
    assert spread(own) == {"thing": "wall", "front": "red", "back": 3, "often": 1}


def test_nobody_changes_a_group_that_was_given() -> None:
    with pytest.raises(FrozenInstanceError):
        Colours(front="red").__setattr__("front", "blue")


def test_a_command_is_called_with_the_group_as_a_keyword() -> None:
    assert set(own_values("--front", "red")) == set(inspect.signature(paint).parameters) - {"call"}
