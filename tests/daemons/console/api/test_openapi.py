"""The description of the API, compared with the responses."""

import asyncio
import re
from typing import Any

from mq.daemons.console.api import openapi
from mq.daemons.console.pages import all_routes
from mq.daemons.console.route import AnyRoute, Change, Route
from tests.daemons.console.sample_pages import ROUTES
from tests.daemons.console.site import Consoles

KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "null": type(None),
    "array": list,
    "object": dict,
}


def misfit(value: Any, schema: dict[str, Any], whole: dict[str, Any], at: str = "$") -> str:
    """Return the path of a value that does not match its schema; empty if all match."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        return misfit(value, whole["components"]["schemas"][name], whole, at)
    if "anyOf" in schema:
        found = [misfit(value, one, whole, at) for one in schema["anyOf"]]
        return "" if "" in found else "; ".join(found)
    if "enum" in schema:
        return "" if value in schema["enum"] else f"{at}: {value!r} is none of {schema['enum']}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(
        isinstance(value, KINDS[k]) and (k == "boolean" or not isinstance(value, bool))
        for k in kinds
    ):
        return f"{at}: {value!r} is no {kinds}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return f"{at}: {value!r}"
    if isinstance(value, list):
        parts = [
            misfit(v, schema.get("items", {}), whole, f"{at}[{n}]") for n, v in enumerate(value)
        ]
        return next(filter(None, parts), "")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        missing = set(schema.get("required", ())) - value.keys()
        others = schema.get("additionalProperties", True)
        unknown = value.keys() - properties.keys() if others is False else set()
        if missing or unknown:
            return f"{at}: lacks {missing}, has {unknown}"
        more = others if isinstance(others, dict) else {}
        found = [misfit(v, properties.get(n, more), whole, f"{at}.{n}") for n, v in value.items()]
        return next(filter(None, found), "")
    return ""


def test_what_is_answered_is_as_described(console: Consoles) -> None:
    async def main() -> None:
        async with console(routes=ROUTES) as site:
            whole = (await site.api("/api/v1/openapi.json")).json
            tried = 0
            for route in all_routes():
                if not isinstance(route, Route) or route.data is None or "{" in route.path:
                    continue
                answer = await site.api(route.path)
                if answer.status != 200:  # needs a query
                    continue
                described = whole["paths"][openapi.BASE + route.path]["get"]
                content = described["responses"]["200"]["content"]
                assert misfit(answer.json, content["application/json"]["schema"], whole) == ""
                tried += 1
            assert tried >= 2
            path = f"/create/{site.pair.broker.address}"
            body = whole["paths"][f"{openapi.BASE}/create/{{address}}"]["post"]["requestBody"]
            sent = body["content"]["application/json"]["schema"]
            assert misfit({"topic": "T"}, sent, whole) == ""
            assert misfit({"topic": "T", "perm": "6"}, sent, whole) != ""
            answers = whole["paths"][f"{openapi.BASE}/create/{{address}}"]["post"]["responses"]
            schema = answers["200"]["content"]["application/json"]["schema"]
            plan = (await site.api(path, {"topic": "T"})).json
            assert misfit(plan, schema, whole) == ""
            done = (await site.api(path, {"confirm": plan["confirm"]})).json
            assert misfit(done, schema, whole) == ""
            error = (await site.api("/operations?before=x")).json
            assert misfit(error, whole["components"]["schemas"]["Error"], whole) == ""

    asyncio.run(main())


def has_format(route: AnyRoute) -> list[str]:
    """Return the parameters of each page that is not a file."""
    return ["format"] if isinstance(route, Route) and not route.kinds else []


def test_every_route_is_described_with_its_parameters() -> None:
    routes = (*all_routes(), *ROUTES)
    whole = openapi.document(routes, "1")
    paths = whole["paths"]
    for route in routes:
        path = openapi.BASE + re.sub(r":path\}", "}", route.path)
        operation = paths[path]["post" if isinstance(route, Change) else "get"]
        parameters = [
            whole["components"]["parameters"]["cluster"] if "$ref" in one else one
            for one in operation["parameters"]
        ]
        names = [one["name"] for one in parameters if one["in"] == "path"]
        assert names == re.findall(r"\{([a-z_]+)\}", path)
        assert operation["summary"] or route in ROUTES
        if not isinstance(route, Change):
            queries = [one["name"] for one in parameters if one["in"] == "query"]
            assert queries == [one.name for one in route.query] + has_format(route)


def test_the_clusters_are_those_that_one_may_see(console: Consoles) -> None:
    async def main() -> None:
        async with console(clusters=["one", "two"], read_only=["two"]) as site:
            found = (await site.api("/api/v1/clusters")).json["clusters"]
            assert found == [
                {"name": "one", "readOnly": False},
                {"name": "two", "readOnly": True},
            ]

    asyncio.run(main())
