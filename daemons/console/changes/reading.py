"""Values of forms: the texts of a browser or program for the declared fields of a change."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mq.daemons.console.call import Call
from mq.daemons.console.parsing import BadValues, Reading, flag, integer, moment
from mq.daemons.console.route import Change, Field

# Fields of the frame in a form; no change has fields with these names.
OWN = frozenset({"csrf", "confirm", "typed", "again", "step"})


def fields_for(change: Change, call: Call) -> tuple[Field, ...]:
    """Return the fields of a change, with the choices for this call."""
    return tuple(
        replace(field, choices=tuple(field.choices(call))) if callable(field.choices) else field
        for field in change.fields
    )


def read_form(
    fields: Sequence[Field], given: Mapping[str, list[str]], reading: Reading
) -> dict[str, Any]:
    """Return the values of the fields. Raises BadValues, also for undeclared fields."""
    declared = {field.name: field for field in fields}
    errors = {
        name[:100]: "no such field" for name in given if name not in declared and name not in OWN
    }
    values: dict[str, Any] = {}
    for name, field in declared.items():
        texts = given.get(name, [])
        try:
            values[name] = read_field(field, texts, reading)
        except ValueError as error:
            errors[name] = str(error)
    if errors:
        raise BadValues(errors)
    return values


def read_field(field: Field, texts: list[str], reading: Reading) -> Any:
    """Return the value of a field. Raises ValueError with the expected form."""
    if field.kind == "flag":
        return bool(texts) and flag.read(texts[-1] or "off", reading)
    if field.kind == "lines":
        # Checkboxes of one name send several texts, a text area one text of several lines.
        lines = [line.strip() for text in texts for line in text.splitlines()]
        found = tuple(line for line in lines if line)
        if field.required and not found:
            raise ValueError("select or enter at least one")
        if sum(map(len, found)) > field.limit:
            raise ValueError(f"expected at most {field.limit} characters")
        return found
    text = texts[-1] if texts else ""
    if field.kind != "secret":
        text = text.replace("\r\n", "\n")  # browsers' line ends
    if len(text) > field.limit:
        raise ValueError(f"expected at most {field.limit} characters")
    if not text.strip() and field.kind != "secret":
        text = "" if field.kind != "text" or not text else text
    if text == "":
        if field.required:
            raise ValueError("required")
        return None
    if field.kind == "integer":
        return integer.read(text.strip(), reading)
    if field.kind == "moment":
        return moment.read(text, reading)
    if field.kind == "choice":
        choices = () if callable(field.choices) else field.choices
        known = [one if isinstance(one, str) else one[0] for one in choices]
        if text not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
    return text


def read_json(
    fields: Sequence[Field], given: Mapping[str, Any], reading: Reading
) -> dict[str, Any]:
    """Return the values of a JSON object: texts, numbers, booleans for flags, lists for "lines".

    Null means no value. Raises BadValues.
    """
    kinds = {field.name: field.kind for field in fields}
    errors = {name[:100]: "no such field" for name in given if name in OWN}
    texts: dict[str, list[str]] = {}
    for name, value in given.items():
        try:
            if value is not None and name not in OWN:
                texts[name] = _texts(kinds.get(name, "text"), value)
        except ValueError as error:
            errors[name[:100]] = str(error)
    if errors:
        raise BadValues(errors)
    return read_form(fields, texts, reading)


def _texts(kind: str, value: Any) -> list[str]:
    """Return a JSON value in the form of a form's texts. Raises ValueError for a wrong type."""
    if kind == "flag":
        if not isinstance(value, bool):
            raise ValueError("expected true or false")
        return ["on" if value else "off"]
    if isinstance(value, bool):
        raise ValueError("expected a text")
    if isinstance(value, str | int | float):
        return [str(value)]
    if kind == "lines" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return list(value)
    raise ValueError("expected a list of texts" if kind == "lines" else "expected a text")
