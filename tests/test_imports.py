"""Imports point one way: protocol ← client ← daemons, pipeline ← cli."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import ALLOWED, ROOT, sources, tree_of

WEB = {"starlette", "uvicorn", "jinja2", "markupsafe", "argon2"}  # an extra: mq[console]
SPARK = {"pyspark", "pyarrow"}  # an extra: only Spark jobs and their command may need it
STARTS_THE_COMMAND = "mq.__main__"
# The modules and folders of the broker: each may import those before it and none after it.
BROKER = (
    *("native_failure", "clock_steps", "periodic", "component"),
    *("broker_config", "tables", "store_config", "store", "config", "roles"),
    *("verified_records", "peer_sessions", "usual_properties", "backlog", "statistics", "filters"),
    *("offsets", "topics", "clients", "groups", "acl", "admin", "delivery", "delayed"),
    *("metrics", "stores", "pull", "replication", "transactions", "send", "dispatch", "pop"),
    *("name_servers", "failover", "components", "app", "controlled_broker"),
)
# Likewise of the client.
CLIENT = (
    *("machine", "errors", "credentials", "send_result", "hooks", "options", "namespace"),
    *("routing", "transport", "admin", "trace", "snode", "offsets"),
    *("producer", "pull", "reader", "consumer", "sync", "tube", "load", "operations"),
)
# The most modules in some of its folders; those at the top are what all others need.
SMALL = {"": 6} | dict.fromkeys(
    ("transport", "routing", "producer", "offsets", "pull", "reader", "consumer"), 10
)


@functools.cache
def imported(source: Path) -> list[tuple[int, str]]:
    """Line and dotted name of each import in a file, functions included."""
    return list(_imported(source))


def _imported(source: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}:{node.lineno}: a relative import"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def module_name(source: Path) -> str:
    parts = list(source.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != "mq":
        parts.insert(0, "mq")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts)


MODULES = sorted(module_name(source) for part in ALLOWED for source in sources(part))


@pytest.mark.parametrize("part", ALLOWED)
def test_a_part_imports_only_allowed_parts(part: str) -> None:
    wrong = []
    for source in sources(part):
        for line, name in imported(source):
            words = name.split(".")
            # `from mq import __version__` names no part.
            if words[0] == "mq" and words[1] in ALLOWED and words[1] not in ALLOWED[part] | {part}:
                wrong.append(f"{source.relative_to(ROOT)}:{line} imports {name}")
    assert wrong == []


def backward_imports(folder: Path, order: tuple[str, ...]) -> list[str]:
    """The imports of a later module or folder by an earlier one; `order` must name all of them."""
    package = module_name(folder / "__init__.py")
    names = {
        source: source.relative_to(folder).with_suffix("").parts[0]
        for source in sorted(folder.rglob("*.py"))
    }
    assert set(names.values()) - {"__init__"} == set(order)
    return [
        f"{source.relative_to(ROOT)}:{line} imports {name}"
        for source, own in names.items()
        for line, name in imported(source)
        if own != "__init__" and name.startswith(f"{package}.")
        if order.index(name.removeprefix(f"{package}.").split(".")[0]) > order.index(own)
    ]


@pytest.mark.parametrize(
    ("folder", "order"), [("daemons/broker", BROKER), ("client", CLIENT)], ids=["broker", "client"]
)
def test_the_features_of_a_part_import_one_way(folder: str, order: tuple[str, ...]) -> None:
    assert backward_imports(ROOT / folder, order) == []


@pytest.mark.parametrize("folder", SMALL)
def test_a_folder_of_the_client_has_few_modules(folder: str) -> None:
    modules = {path.name for path in (ROOT / "client" / folder).glob("*.py")} - {"__init__.py"}
    assert 0 < len(modules) <= SMALL[folder]


def test_only_the_store_imports_its_modules() -> None:
    """Others use what `mq.daemons.broker.store` exports, the commands also its offline tools."""
    store = ROOT / "daemons" / "broker" / "store"
    base = "mq.daemons.broker.store"
    public = {base, f"{base}.layout", f"{base}.tools"}
    inside = [name for name in MODULES if name.startswith("mq.daemons.broker.store.")]
    modules = {"mq.daemons.broker.store.tools.repair"}
    wrong = []
    for part in ALLOWED:
        for source in sources(part):
            if source.is_relative_to(store):
                continue
            for line, name in imported(source):
                package = name.rpartition(".")[0]
                if name in inside and name not in modules | public:
                    wrong.append(f"{source.relative_to(ROOT)}:{line} imports {name}")
                if package in inside and package not in public:
                    wrong.append(f"{source.relative_to(ROOT)}:{line} imports {name}")
                if package.endswith("store.tools") and package in public and part != "cli":
                    wrong.append(f"{source.relative_to(ROOT)}:{line} imports {name}")
    assert "mq.daemons.broker.store.log.append" in inside
    assert wrong == []


@pytest.mark.parametrize("part", [part for part in ALLOWED if part != "pipeline"])
def test_only_the_pipeline_needs_spark(part: str) -> None:
    for source in sources(part):
        if source == ROOT / "cli" / "commands" / "spark.py":
            continue
        assert SPARK.isdisjoint(name.split(".")[0] for _, name in imported(source)), source


def test_only_the_console_needs_the_libraries_that_serve_pages() -> None:
    for part in ALLOWED:
        for source in sources(part):
            if source.is_relative_to(ROOT / "daemons" / "console"):
                continue
            assert WEB.isdisjoint(name.split(".")[0] for _, name in imported(source)), source


def test_only_its_command_imports_the_console() -> None:
    users = {
        str(source.relative_to(ROOT))
        for part in ALLOWED
        for source in sources(part)
        if not source.is_relative_to(ROOT / "daemons" / "console")
        and any(name.startswith("mq.daemons.console") for _, name in imported(source))
    }
    assert users == {
        "cli/commands/console.py",
        "cli/commands/console_accounts.py",
        "cli/commands/console_tokens.py",
        "cli/commands/console_import.py",
        "cli/commands/standalone.py",  # --console, for its types
        "cli/manual/pages.py",  # its settings
    }


IMPORT_EACH = """
import contextlib, gc, importlib, os, sys, traceback
libraries, names = (argument.split(",") for argument in sys.argv[1:])
for name in libraries:  # once: they take longer than all of mq
    with contextlib.suppress(ImportError):  # `from a import b`, and b is no module
        importlib.import_module(name)
# A collection in a child would copy every page of the libraries.
gc.freeze()
gc.disable()
failed = []
for name in names:
    # A process of its own for each: what another module has imported must not help it.
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit(" ".join(failed) or None)
"""


def libraries() -> set[str]:
    """The imports of other libraries in all parts: modules, and perhaps names in them."""
    names = {name for part in ALLOWED for path in sources(part) for _, name in imported(path)}
    return {name for name in names if name.split(".")[0] != "mq"}


# Another test finds circular imports in the source; this one finds those that only appear at run
# time.
@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_module_can_be_imported_first() -> None:
    names = [name for name in MODULES if name != STARTS_THE_COMMAND]
    # Libraries may have started threads when imported; the forked code here needs none.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    arguments = [",".join(sorted(libraries())), ",".join(names)]
    command = [sys.executable, *warnings, "-c", IMPORT_EACH, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_no_wait_can_lose_a_cancellation() -> None:
    # Before Python 3.12 asyncio.wait_for returns the result if it is cancelled when the result
    # arrives.
    parts = ("cli", "client", "daemons", "mq", "pipeline", "protocol")
    sources = [path for part in parts for path in (ROOT / part).rglob("*.py")]
    assert [str(path) for path in sources if "asyncio.wait_for(" in path.read_text("utf-8")] == []


def import_graph() -> dict[str, set[str]]:
    """The modules of mq that each one imports, also those for types only."""
    graph: dict[str, set[str]] = {}
    for source in [source for part in ALLOWED for source in sources(part)]:
        names = {name for _, name in imported(source)}
        names |= {name.rpartition(".")[0] for name in names - set(MODULES)}
        graph[module_name(source)] = names & set(MODULES) - {module_name(source)}
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of modules each of which reaches all others of its group."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        left = [start]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        reached[start] = seen
    found: list[set[str]] = []
    for name, seen in reached.items():
        if name in seen and not any(name in circle for circle in found):
            found.append({other for other in seen if name in reached[other]})
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [{"b", "c"}]
    graph = import_graph()
    assert "mq.daemons.channel" in graph["mq.daemons.dispatch"]
    assert circles(graph) == []


def test_code_shared_by_tests_is_in_separate_modules() -> None:
    """So a test can be moved, split or deleted without affecting others."""
    shared = [
        f"{source.relative_to(ROOT)}:{line}: {name}"
        for source in sorted((ROOT / "tests").rglob("*.py"))
        if ".test_" in source.read_text("utf-8")  # only a few of a thousand are worth parsing
        for line, name in imported(source)
        if name.startswith("tests.") and "test_" in name.rpartition(".")[0]
    ]
    assert shared == []
