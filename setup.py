"""What pyproject.toml cannot say: TubeMQ's messages are compiled, and the native path is built
where a Rust compiler is.

MQ_NATIVE=0 leaves the native path out, as it turns it off in a broker. What of it cannot be
compiled is left out too, and everything works without it (docs/decisions/0047). Without the
messages TubeMQ does not work: the build fails where they cannot be compiled (docs/decisions/0062).
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

ROOT = Path(__file__).resolve().parent


def compile_messages() -> None:
    """Write the modules and stubs of the .proto files, unless those there are newer.

    A file is compiled under the path that it is imported by, so that its name is its own among all
    descriptors of a process.
    """
    sources = sorted((ROOT / "mq/protocol/tube").glob("*.proto"))
    stale = [source for source in sources if _is_stale(source)]
    if not stale:
        return
    from grpc_tools import protoc  # only what has to be compiled needs it

    names = [str(source.relative_to(ROOT)) for source in stale]
    out = [f"--{kind}_out={ROOT}" for kind in ("python", "pyi")]
    if protoc.main(["protoc", f"--proto_path={ROOT}", *out, *names]) != 0:
        raise SystemExit(f"protoc refused {', '.join(names)}")


def _is_stale(source: Path) -> bool:
    made = [source.with_name(f"{source.stem}_pb2{suffix}") for suffix in (".py", ".pyi")]
    changed = source.stat().st_mtime
    return not all(path.exists() and path.stat().st_mtime >= changed for path in made)


compile_messages()
wanted = os.environ.get("MQ_NATIVE") != "0" and shutil.which("cargo") is not None
native = RustExtension(
    "mq.protocol.native._native",
    "protocol/native/Cargo.toml",
    args=["--locked"],
    binding=Binding.PyO3,
    debug=False,  # an editable installation would otherwise have it so
    optional=True,
    py_limited_api=True,
)
setup(
    rust_extensions=[native] if wanted else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if wanted else {},
)
