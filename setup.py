"""What pyproject.toml cannot say: the native path is built where a Rust compiler is.

MQ_NATIVE=0 leaves it out, as it turns it off in a broker. What cannot be compiled is left out too,
and everything works without it (docs/decisions/0047).
"""

import os
import shutil

from setuptools import setup
from setuptools_rust import Binding, RustExtension

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
