from mq.cli.manual.examples import Example, laid_out, split

DOCSTRING = r"""Show a topic.

    With its messages.

    Examples:
        mq show Orders --format '%k  %b\n'
                                   keys and bodies,
                                   a line each
        mq show Orders             all of it
    """


def test_examples_are_the_last_section_and_no_part_of_the_text() -> None:
    text, examples = split(DOCSTRING.replace("%k  %b", "%k %b"))
    assert text == "Show a topic.\n\nWith its messages."
    assert examples == (
        Example(r"mq show Orders --format '%k %b\n'", "keys and bodies, a line each"),
        Example("mq show Orders", "all of it"),
    )


def test_a_docstring_without_examples_has_none() -> None:
    assert split("Show a topic.") == ("Show a topic.", ())
    assert split(None) == ("", ())


def test_a_long_command_stays_whole_above_what_it_does() -> None:
    long = "mq show Orders " + "x" * 60
    lines = list(laid_out([Example(long, "much"), Example("mq show", "a little of " * 5)], 40))
    assert lines[0] == long
    assert lines[1] == "         much"
    assert lines[2].startswith("mq show  a little of")
    assert all(len(line) <= 40 for line in lines[1:])


def test_an_example_can_be_shown_by_another_name_of_its_command() -> None:
    shown = Example("mq updateTopic Orders", "create it").called("updateTopic", "topic create")
    assert shown == Example("mq topic create Orders", "create it")
