"""The tables of docs/protocol.md and docs/permissions.md: `python -m mq.protocol.document`.

They are generated from the declarations. Run from the root of the project it replaces everything
after MARK in docs/protocol.md, and the tables of requests between START and END in
docs/permissions.md; the prose is written by hand. Tests fail when a committed file is outdated.
"""

import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Any

from mq.protocol import bodies, headers
from mq.protocol.bodies.schema import Body, BodyField
from mq.protocol.codes import (
    AnyCode,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SnodeCode,
    answered_by,
)
from mq.protocol.headers.schema import Field, Header
from mq.protocol.requests import BROKER, CONTROLLER, FILTER_SERVER, NAME_SERVER, RequestKind

MARK = "<!-- generated from here on: python -m mq.protocol.document -->\n"
PATH = Path("docs/protocol.md")

START = "<!-- generated from here on: python -m mq.protocol.document -->\n\n"
END = "<!-- generated up to here: python -m mq.protocol.document -->\n"
PERMISSIONS = Path("docs/permissions.md")

_KINDS = {"text": "text", "i32": "i32", "i64": "i64", "bool": "bool", "float": "float"}


def tables() -> str:
    """Return all tables, as Markdown."""
    return "\n".join((*_codes(), *_headers(), *_bodies()))


def write(path: Path = PATH) -> None:
    """Put the tables in the document at `path`, after MARK."""
    prose, mark, _ = path.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"{path} has no line {MARK!r}: it marks where the tables go")
    path.write_text(prose + MARK + tables(), encoding="utf-8")


def permission_tables() -> tuple[str, ...]:
    """Return the rights that brokers and filter servers require of an account, and the access rules
    of name servers and controllers.
    """
    broker, filter_server = (
        [(str(int(code)), code.name, code.needs) for code in answered_by(role)]
        for role in (BROKER, FILTER_SERVER)
    )
    others = (
        [
            (
                str(int(code)),
                code.name,
                "everyone" if code.kind is RequestKind.READ else "a writer",
            )
            for code in answered_by(role)
        ]
        for role in (NAME_SERVER, CONTROLLER)
    )
    return (
        "\n".join(_table(("code", "request", "needs"), broker)) + "\n",
        *("\n".join(_table(("code", "request", "who"), rows)) + "\n" for rows in others),
        "\n".join(_table(("code", "request", "needs"), filter_server)) + "\n",
    )


def write_permissions(path: Path = PERMISSIONS) -> None:
    """Put the tables in the document at `path`, each between START and END."""
    done, rest = "", path.read_text(encoding="utf-8")
    for table in permission_tables():
        before, start, rest = rest.partition(START)
        _, end, rest = rest.partition(END)
        if not start or not end:
            raise SystemExit(f"{path} has not both lines {START!r} and {END!r} for each table")
        done += before + start + table + end
    path.write_text(done + rest, encoding="utf-8")


def _codes() -> Iterator[str]:
    yield "\n## Request codes\n"
    yield "A body is named if it is JSON of a class; others are text, messages or empty. For the"
    yield "access rules of brokers and name servers see [permissions.md](permissions.md).\n"
    yield from _table(
        ("code", "name", "header", "body", "kind", "answered by", "releases"),
        map(_code_row, RequestCode),
    )
    yield "\n## Request codes of snodes\n"
    yield "The meaning of these numbers at name servers and snodes, and at a broker on a connection"
    yield "of a snode ([0059](decisions/0059-dialects.md)); all other numbers mean the same.\n"
    yield from _table(
        ("code", "name", "header", "body", "kind", "answered by", "releases"),
        map(_code_row, SnodeCode),
    )
    yield "\n## Response codes\n"
    aliases: dict[int, list[str]] = {}
    for name, response in ResponseCode.__members__.items():
        if name != response.name:
            aliases.setdefault(response, []).append(f"{name} (5.x)")
    responses = (
        (str(int(code)), ", ".join([code.name, *aliases.get(code, [])]), code.release or "all")
        for code in ResponseCode
    )
    yield from _table(("code", "name", "releases"), responses)
    yield "\n## Language codes\n"
    yield from _table(("code", "name"), ((str(int(code)), code.name) for code in LanguageCode))


def _code_row(code: AnyCode) -> tuple[str, ...]:
    by_code = headers.SNODE_HEADERS if isinstance(code, SnodeCode) else headers.HEADERS
    header = by_code.get(code)
    roles = ", ".join((role.name or "").lower().replace("_", " ") for role in code.answered_by)
    return (
        *(str(int(code)), code.name),
        header.__name__ if header else "",
        code.body,
        code.kind.value,
        roles,
        code.release or "all",
    )


def _headers() -> Iterator[str]:
    yield "\n## Headers"
    yield "\nA field in **bold** is required; for others the default is shown, if it is not null.\n"
    for subject, names in headers.SUBJECTS.items():
        if subject == "schema":
            continue
        module = import_module(f"mq.protocol.headers.{subject}")
        yield f"\n### mq.protocol.headers.{subject}\n\n{module.__doc__}\n"
        yield from _table(
            ("header", "of", "fields"),
            (_header_row(header) for header in _in_order(module, names)),
        )


def _header_row(header: type[Header]) -> tuple[str, ...]:
    parts = [f"request {_code_text(code)}" for code in header.REQUESTS]
    parts += [f"answer to {_code_text(code)}" for code in header.ANSWERS]
    release = f" ({header.RELEASE})" if header.RELEASE else ""
    base = header.__mro__[1]
    inherited = [] if base is Header else [f"*those of {base.__name__}*"]
    own = [_field_text(f) for f in header.FIELDS if f.name in header.__annotations__]
    return (
        f"**{header.__name__}**{release}: {header.__doc__}",
        "<br>".join(parts),
        ", ".join(own + inherited),
    )


def _code_text(code: RequestCode | SnodeCode) -> str:
    return f"{code.name} ({int(code)})"


def _field_text(field: Field) -> str:
    name = f"**{field.wire}**" if field.required else field.wire
    text = f"{name} {_KINDS[field.kind]}"
    if field.default is not None:
        text += f" = {str(field.default).lower()}"
    if field.wire not in (field.name, _camel(field.name)):
        text += f" [{field.name}]"
    return text + (f" ({field.release})" if field.release else "")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _bodies() -> Iterator[str]:
    yield "\n## Bodies"
    yield "\nEach field has a default; it is shown if it is neither null nor empty.\n"
    for subject, names in bodies.SUBJECTS.items():
        module = import_module(f"mq.protocol.bodies.{subject}")
        if subject == "schema":
            continue
        yield f"\n### mq.protocol.bodies.{subject}\n\n{module.__doc__}\n"
        classes = _in_order(module, names)
        if subject == "enums":
            rows = (_enum_row(enum) for enum in classes)
        else:
            rows = (_body_row(body) for body in classes)
        yield from _table(("body", "fields"), rows)


def _enum_row(enum: type[Enum]) -> tuple[str, ...]:
    return f"**{enum.__name__}**: {enum.__doc__}", ", ".join(enum.__members__)


def _body_row(body: type[Body]) -> tuple[str, ...]:
    release = f" ({body.RELEASE})" if body.RELEASE else ""
    base = body.__mro__[1]
    inherited = [] if base is Body else [f"*those of {base.__name__}*"]
    own = [_body_field_text(f) for f in body.FIELDS if f.name in body.__annotations__]
    return f"**{body.__name__}**{release}: {body.__doc__}", ", ".join(own + inherited)


def _body_field_text(field: BodyField) -> str:
    text = f"{field.wire} {type_text(field.annotation)}"
    default = field.default
    if isinstance(default, Enum):
        text += f" = {default.name}"
    elif default not in (None, "", 0, False):
        text += f" = {str(default).lower()}"
    return text + (f" ({field.release})" if field.release else "")


def type_text(annotation: Any) -> str:
    """Format a type for readers: `dict[text, list[QueueData]]`."""
    if isinstance(annotation, UnionType):
        return type_text(annotation.__args__[0])
    if isinstance(annotation, GenericAlias):
        arguments = ", ".join(map(type_text, annotation.__args__))
        return f"{annotation.__origin__.__name__}[{arguments}]"
    return "text" if annotation is str else str(annotation.__name__)


def _in_order(module: Any, names: Iterable[str]) -> list[Any]:
    """Return the classes of a module in the order of its source."""
    order = list(vars(module))
    return [getattr(module, name) for name in sorted(names, key=order.index)]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace(chr(10), ' ') for cell in row)} |"
    yield ""


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else PATH)
    write_permissions()
