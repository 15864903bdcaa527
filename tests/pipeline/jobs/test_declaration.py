"""Declarations of jobs, and the errors for wrong arguments."""

import re
import shlex
import subprocess
import sys

import pytest

from mq.client.operations.columns import Kind, number, text
from mq.pipeline.jobs import JOBS, UnknownJob, load
from mq.pipeline.jobs.declaration import Job, JobError, JobOptionError
from mq.pipeline.jobs.job_result import JobResult, Shape


@pytest.mark.parametrize("name", JOBS)
def test_every_job_has_a_summary_and_valid_examples(name: str) -> None:
    job = load(name)
    assert re.fullmatch(r"[A-Z].{10,90}\.", job.summary), job.summary
    assert job.tables or job.writes
    for option in job.options:
        assert option.name == option.name.lower().strip("-")
        assert option.help.endswith(".")
        option.parse(option.example or "true")
        assert option.default_text == "" or option.parse(option.default_text) == option.default
    words = shlex.split(job.example.removeprefix(f"mq spark submit {name}"))
    job.read(dict(zip([word.removeprefix("--") for word in words[::2]], words[1::2], strict=True)))
    columns = [column for shape in job.tables for column in shape.columns]
    assert {column.kind for column in columns} <= set(Kind)


def test_jobs_are_known_without_spark() -> None:
    code = (
        "import sys\nfrom mq.pipeline.jobs import JOBS, load\n"
        "for name in JOBS: load(name)\n"
        "print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (shown.stdout, shown.stderr) == ("set()\n", "")


def test_an_unknown_job_gets_a_suggestion() -> None:
    with pytest.raises(UnknownJob) as raised:
        load("cuont")
    assert raised.value.near == ["count"]


def test_arguments_become_options() -> None:
    options = load("count").read({"topic": "A,B", "begin": "1970-01-01T00:00:01+00:00"})
    assert (options.topic, options.begin, options.end) == (("A", "B"), 1000, None)
    assert options.source_options() == {"topic": "A,B", "startingTimestamp": "1000"}


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"topik": "A"}, "--topik: job count has no such option", "did you mean --topic?"),
        ({"qqq": "A"}, "--qqq: job count has no such option", "see: mq spark explain count"),
        (
            {"topic": "A", "begin": "noon"},
            "--begin: 'noon' is neither ms since 1970 nor a time as in ISO 8601",
            "for example: --begin 2026-01-31T08:00:00+01:00",
        ),
    ],
)
def test_a_wrong_option_is_named_with_a_valid_one(
    given: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(JobOptionError) as raised:
        load("count").read(given)
    assert (str(raised.value), raised.value.hint) == (message, hint)


def test_conflicting_options_are_refused() -> None:
    job = load("count")
    for given in ({}, {"topic": "A", "topic-pattern": "A.*"}):
        with pytest.raises(JobError, match="either --topic or --topic-pattern"):
            job.read(given)


def test_a_result_survives_the_conversion_to_json() -> None:
    shape = Shape("queues", "Queues", (text("topic", "Topic"), number("messages", "Messages")))
    outcome = JobResult([shape.of([("T", 3), ("U", None)])], ["V: away"], ["a note"], "<html>")
    assert JobResult.from_json(outcome.to_json(), [shape]) == outcome


def test_a_job_is_declared_by_its_module() -> None:
    job = load("count")
    assert isinstance(job, Job)
    assert job.example == "mq spark submit count --topic Orders"
    assert [option.name for option in job.options if option.required] == []
