"""The API description (OpenAPI 3.1), made from routes and the dataclasses of their pages."""

import dataclasses
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from mq.daemons.console.api.values import camel
from mq.daemons.console.permissions import ROLES
from mq.daemons.console.route import (
    API,
    FORMATS,
    AnyRoute,
    Change,
    Field,
    Outcome,
    Plan,
    Query,
    Route,
    Stream,
)

BASE = f"{API}/clusters/{{cluster}}"
_PARAMETER = re.compile(r"\{([a-z_]+)(?::path)?\}")
# A number over 2^53 is a string: JavaScript cannot represent it exactly.
_INTEGER = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]}
_PLAIN: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: _INTEGER,
    float: {"type": "number"},
    type(None): {"type": "null"},
}
_QUERY: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    # An empty text means no value.
    "integer": {"anyOf": [{"type": "integer", "format": "int64"}, {"const": ""}]},
    "flag": {"anyOf": [{"type": "boolean"}, {"const": ""}]},
    "moment": {"type": "string", "description": 'ms since 1970, ISO 8601, or such as "-15m"'},
}


def document(
    routes: Iterable[AnyRoute],
    version: str,
    prefix: str = "",
    text: Callable[[str], str] = str,
    clusters: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the description; ``text`` translates descriptions. ``clusters`` are the known ones."""
    schemas = Schemas()
    paths: dict[str, Any] = {}
    for route in routes:
        path = BASE + _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {}).update(_operation(route, schemas, text))
    schemas.made["Error"] = _error()
    cluster = {"type": "string"} | ({"enum": list(clusters)} if clusters else {})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mq console",
            "version": version,
            "description": "The console's pages for programs. Unknown values are null. A change "
            "takes two requests: the response to the first is a plan and its hash, the second, "
            '{"confirm": HASH}, makes the change.',
        },
        "servers": [{"url": prefix or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.made.items())),
            "parameters": {"cluster": _parameter("cluster", "path", cluster, required=True)},
            "responses": _REFUSED,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: AnyRoute, schemas: "Schemas", text: Callable[[str], str]) -> dict[str, Any]:
    role = next(name for name, permission in ROLES.items() if permission >= route.needs)
    parameters: list[dict[str, Any]] = [{"$ref": "#/components/parameters/cluster"}]
    parameters += [
        _parameter(name, "path", {"type": "string"}, required=True)
        for name in _PARAMETER.findall(route.path)
    ]
    common: dict[str, Any] = {
        "summary": text(route.about),
        "description": f"For the role {role}.",
        "parameters": parameters,
    }
    refused = {
        status: {"$ref": f"#/components/responses/{name}"} for status, name in _STATUSES.items()
    }
    if isinstance(route, Change):
        body = {"anyOf": [_fields(route.fields, text), _CONFIRM]}
        content = {"application/json": {"schema": body}}
        answer = {"anyOf": [schemas.plan(), schemas.done()]}
        answers = {"200": _answer("The plan, or the results.", answer), **refused}
        return {
            "post": {**common, "requestBody": {"required": True, "content": content}}
            | {"responses": answers}
        }
    common["parameters"] = parameters + [_in_query(one, text) for one in route.query]
    if isinstance(route, Stream):
        events: Any = {"text/event-stream": {"schema": {"type": "string"}}}
        answers = {"200": {"description": "Events", "content": events}, **refused}
        return {"get": common | {"responses": answers}}
    return {"get": common | {"responses": {**_found(route, schemas, common), **refused}}}


def _found(route: Route, schemas: "Schemas", common: dict[str, Any]) -> dict[str, Any]:
    """Return the responses of an existing page. A page also has a parameter for its format."""
    text: dict[str, Any] = {"schema": {"type": "string"}}
    if route.kinds:
        content = dict.fromkeys(route.kinds, text)
        return {"200": {"description": "The file.", "content": content}}
    schema = {"type": "object"} if route.data is None else schemas.of(route.data)
    answer = _answer("The page.", schema)
    answer["content"]["text/csv"] = text
    form = {"type": "string", "enum": list(FORMATS), "default": FORMATS[0]}
    about = {"description": "CSV is the table of the page; some pages have none."}
    common["parameters"] = [*common["parameters"], _parameter("format", "query", form) | about]
    moved = {"303": {"$ref": "#/components/responses/Moved"}} if route.redirects else {}
    return {"200": answer, **moved}


def _parameter(
    name: str, place: str, schema: Mapping[str, Any], *, required: bool = False
) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": schema} | ({"required": True} if required else {})


def _in_query(one: Query, text: Callable[[str], str]) -> dict[str, Any]:
    schema: dict[str, Any] = dict(_QUERY.get(one.parse.name, {"type": "string"}))
    if one.parse.choices:
        schema["enum"] = [*one.parse.choices, ""]  # an empty text means no value
    if isinstance(one.default, str | int | float) and one.default != "":
        schema["default"] = one.default
    return {"name": one.name, "in": "query", "schema": schema} | (
        {"description": text(one.about)} if one.about else {}
    )


def _answer(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusal(description: str, kind: str = "application/json") -> dict[str, Any]:
    is_json = kind == "application/json"
    schema = {"$ref": "#/components/schemas/Error"} if is_json else {"type": "string"}
    return {"description": description, "content": {kind: {"schema": schema}}}


_STATUSES = {"405": "OtherMethod", "413": "TooLarge", "503": "TooBusy", "default": "Refused"}
# The HTTP layer responds in plain text: it does not know the API.
_REFUSED = {
    "Refused": _refusal(
        "400: a wrong value. 401: no token. 403: the role does not allow it. 404: not found. "
        "409: in use, or an expired plan. 415: not JSON. 429: too many attempts. "
        "5xx: a broker, a name server or the console failed."
    ),
    "TooLarge": _refusal("The body is larger than 1 MB.", "text/plain"),
    "TooBusy": {
        "description": "Too many requests at once, or a file cannot be written.",
        "content": {kind: {"schema": {}} for kind in ("text/plain", "application/json")},
    },
    "OtherMethod": {
        **_refusal("The address has other methods.", "text/plain"),
        "headers": {"Allow": {"schema": {"type": "string"}}},
    },
    "Moved": {
        "description": "The response has another address.",
        "headers": {"Location": {"required": True, "schema": {"type": "string"}}},
    },
}

_CONFIRM = {
    "type": "object",
    "properties": {
        "confirm": {"type": "string", "description": "The hash of the plan."},
        "typed": {"type": "string", "description": "The name, for irreversible changes."},
    },
    "required": ["confirm"],
    "additionalProperties": False,
}


def _fields(fields: Sequence[Field], text: Callable[[str], str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            one.name: _field(one) | {"description": text(one.help or one.label)} for one in fields
        },
        "required": [one.name for one in fields if one.required],
        "additionalProperties": False,
    }


def _field(field: Field) -> dict[str, Any]:
    """Return the schema of a field; an optional one may be null."""
    null = [] if field.required else ["null"]
    if field.kind == "flag":
        return {"type": ["boolean", "null"]}
    if field.kind == "choice" and not callable(field.choices):
        choices: list[Any] = [c if isinstance(c, str) else c[0] for c in field.choices]
        return {"enum": choices if field.required else [*choices, "", None]}
    schema: dict[str, Any] = {"type": ["string", "number", *null], "maxLength": field.limit}
    if field.required:
        schema["minLength"] = 1
    if field.kind == "integer":
        schema["type"] = ["integer", "string", *null]
    elif field.kind == "secret":
        schema["format"] = "password"
    elif field.kind == "lines":
        schema["type"] += ["array"]
        schema["items"] = {"type": "string"}
        if field.required:
            schema["minItems"] = 1
    return schema


def _error() -> dict[str, Any]:
    """Return the schema of an error response."""
    fields = {
        "type": "object",
        "additionalProperties": _PLAIN[str],
        "description": "The reason for each wrong field of a change, by its name.",
    }
    return _object({**{name: _PLAIN[str] for name in ("error", "hint", "id")}, "fields": fields})


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


class Schemas:
    """Makes schemas of dataclasses; each is described once, by its name."""

    def __init__(self) -> None:
        self.made: dict[str, dict[str, Any]] = {}
        self._names: dict[type, str] = {}

    def plan(self) -> dict[str, Any]:
        """Return the schema of the response to an unconfirmed change."""
        properties = {
            "confirm": _PLAIN[str],
            "seconds": _PLAIN[int],
            "plan": self.of(Plan),
            "requests": {"type": "array", "items": _PLAIN[str]},
            "more_requests": _PLAIN[int],
            "type": {"type": ["string", "null"]},
        }
        return _object(properties)

    def done(self) -> dict[str, Any]:
        """Return the schema of the response to a confirmed change."""
        items = {"type": "array", "items": self.of(Outcome)}
        return _object({"done": _PLAIN[bool], "outcomes": items})

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type in a page's data."""
        if kind in _PLAIN:
            return _PLAIN[kind]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return {"$ref": f"#/components/schemas/{self._named(kind)}"}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [one.value for one in kind]}
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(one) for one in arguments]}
        if origin is not None and isinstance(origin, type):
            if issubclass(origin, Mapping):
                return {"type": "object", "additionalProperties": self.of(arguments[1])}
            if issubclass(origin, Sequence | frozenset | set):
                items = [one for one in arguments if one is not ...]
                schemas = [self.of(one) for one in items]
                several = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
                return {"type": "array", "items": several}
        return {}

    def _named(self, kind: type) -> str:
        if kind in self._names:
            return self._names[kind]
        name = kind.__name__
        if name in self.made:  # pages may use equal class names
            name = f"{kind.__module__.rpartition('.')[2].title().replace('_', '')}{name}"
        self._names[kind] = name
        self.made[name] = {}
        hints = get_type_hints(kind)
        properties = {
            camel(field.name): self.of(hints[field.name]) for field in dataclasses.fields(kind)
        }
        self.made[name] = {
            **_object(properties),
            "description": (kind.__doc__ or "").strip().splitlines()[0],
            "additionalProperties": False,
        }
        return name
