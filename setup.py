"""The build steps that pyproject.toml cannot express: TubeMQ's messages and the native path.

The native path is built if there is a Rust compiler and MQ_NATIVE is not 0. A failed build of it is
not an error, because everything works without it (docs/decisions/0047). TubeMQ does not work
without its messages, so the build fails if they cannot be compiled (docs/decisions/0062).
"""

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools_rust import Binding, RustExtension

ROOT = Path(__file__).resolve().parent


def compile_messages() -> None:
    """Write the modules and stubs of the .proto files, unless those there are newer.

    A file is compiled under its import path, so that its name is unique among the descriptors of a
    process.
    """
    sources = sorted((ROOT / "mq/protocol/tube").glob("*.proto"))
    stale = [source for source in sources if _is_stale(source)]
    if not stale:
        return
    from grpc_tools import protoc  # a build dependency, not needed if all are newer

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
    debug=False,  # editable installations build with debug by default
    optional=True,
    py_limited_api=True,
)
setup(
    rust_extensions=[native] if wanted else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if wanted else {},
)
