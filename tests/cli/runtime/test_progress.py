import io

from mq.cli.runtime.env import Environment
from mq.cli.runtime.progress import progress


def environment(*, terminal: bool) -> tuple[Environment, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    found = Environment(
        stdin=io.StringIO(), stdout=out, stderr=err, variables={}, error_terminal=terminal
    )
    return found, out, err


def test_a_pipe_hears_nothing() -> None:
    surroundings, out, err = environment(terminal=False)
    with progress(surroundings, "exporting", total=2) as step:
        step()
        step(1, "broker-a")
    assert (out.getvalue(), err.getvalue()) == ("", "")


def test_a_terminal_sees_how_far_it_is_on_stderr_alone() -> None:
    surroundings, out, err = environment(terminal=True)
    with progress(surroundings, "exporting [x]", total=2000, unit="messages") as step:
        step(500)
        step(1500, "broker-a:[3]")
    assert out.getvalue() == ""
    assert "exporting [x]" in err.getvalue()
    assert "2,000/2,000 messages" in err.getvalue()
    assert "broker-a:[3]" in err.getvalue()


def test_without_a_total_what_is_done_is_counted() -> None:
    surroundings, _, err = environment(terminal=True)
    with progress(surroundings, "reading", unit="records") as step:
        step(7)
    assert "7 records" in err.getvalue()
    with progress(surroundings, "reading", unit="bytes") as step:
        step(7_000_000)
    assert "7.0" in err.getvalue()
