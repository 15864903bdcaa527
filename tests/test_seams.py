"""The product uses its machine only through client/machine (docs/decisions/0046)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_tree import tree_of

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("protocol", "client", "daemons")
# Modules that concern this machine or process itself.
EXEMPT = {
    "client/machine": "the seams",
    "protocol/document.py": "makes the documentation",
    "daemons/standalone.py": "takes a temporary folder of this machine",
    "daemons/tube/standalone.py": "likewise",
    "client/operations": "what commands write and read where they run: exports, plans",
    "client/load": "mq bench measures this machine",
    "client/producer/log_sender.py": "its own event loop and thread, for programs without a loop",
    "client/producer/log_handler.py": "its other half",
    "client/transport/blocking.py": "blocks on a socket, in commands",
    "daemons/instances": "processes of this machine, and how they end",
    "daemons/filtersrv/sandbox": "a process of this machine without access to it",
    "daemons/log_output.py": "the log of this process, written by its own thread",
    "daemons/service.py": "signals, the watchdog and the end of this process",
    "daemons/tls_config.py": "certificates are read by the ssl module, which opens files itself",
    "daemons/tls.py": "likewise",
}
CLOCKS = {
    "time",
    "time_ns",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "thread_time",
}
# Names that do not access a file: texts and the process in os, texts in Path.
OS_ALLOWED = {
    *("environ", "getpid", "geteuid", "getegid", "cpu_count", "sysconf", "fspath", "strerror"),
    *("PathLike", "linesep", "sched_getaffinity", "stat_result"),
}
FILE_METHODS = {
    *("read_bytes", "read_text", "write_bytes", "write_text", "unlink", "mkdir", "rmdir", "touch"),
    *("iterdir", "glob", "rglob", "is_file", "is_dir", "exists", "rename", "stat", "chmod"),
}
# `importlib.resources` has these names, too, for files of the package.
RESOURCES = {"daemons/broker/filters/sql92.py"}
WHOLE = {"random", "uuid", "secrets", "shutil", "mmap", "fcntl", "tempfile", "filecmp"}
THREADS = {"Thread", "Lock", "RLock", "Condition", "Event", "Timer"}


def past_the_seams(tree: ast.Module, *, resources: bool = False) -> Iterator[tuple[int, str]]:
    """Line and text of direct uses of the machine."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            base, name = ast.unparse(node.value), node.attr
            if (
                (base == "time" and name in CLOCKS)
                or (base == "os" and name not in OS_ALLOWED and not name.isupper())
                or (base in WHOLE and text != "mmap.mmap")
                or (base == "threading" and name in THREADS)
                or (name in ("now", "utcnow", "today") and base.startswith(("date", "datetime")))
            ):
                yield node.lineno, text
            elif name in FILE_METHODS and base not in ("files", "self._routes") and not resources:
                yield node.lineno, text
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "open":
                yield node.lineno, "open()"
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "os", "random"):
            yield node.lineno, f"from {node.module} import"


def sources() -> list[Path]:
    found = [path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))]
    assert len(found) > 200
    return [
        path for path in found if not any(path.is_relative_to(ROOT / exempt) for exempt in EXEMPT)
    ]


def test_the_product_bypasses_no_seam() -> None:
    wrong = []
    for path in sources():
        name = str(path.relative_to(ROOT))
        for line, text in past_the_seams(tree_of(path), resources=name in RESOURCES):
            wrong.append(f"{name}:{line}: {text}")
    assert wrong == []


@pytest.mark.parametrize("exempt", EXEMPT)
def test_every_exempt_module_exists(exempt: str) -> None:
    assert (ROOT / exempt).exists()


@pytest.mark.parametrize(
    "code",
    [
        *("time.time()", "clock or time.monotonic", "os.open(path, 0)", "open(path)"),
        *("path.read_bytes()", "self.path.exists()", "random.random()", "uuid.uuid4()"),
        *("threading.Lock()", "datetime.datetime.now()", "shutil.rmtree(x)", "mmap.mmap(1, 2).x"),
        *("from time import time", "os.urandom(8)"),
    ],
)
def test_direct_use_of_the_machine_is_found(code: str) -> None:
    seen = list(past_the_seams(ast.parse(code)))
    assert len(seen) == (code != "mmap.mmap(1, 2).x")
