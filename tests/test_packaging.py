"""The content of the wheel: every module under its import name, and nothing else."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from mq import __version__
from tests.pipeline.conftest import require_spark

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
LINKS = [path for path in sorted((ROOT / "mq").iterdir()) if path.is_symlink()]
FOLDERS = {"mq": "mq"} | {f"mq.{link.name}": str(link.readlink())[3:] for link in LINKS}
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
BUILD_SOURCES = BUILD.replace("build_wheel", "build_sdist")


def files_on_disk() -> set[str]:
    """The path in the wheel of every module, and of every data file next to one."""
    return {
        str(Path(*name.split(".")) / source.relative_to(ROOT / folder))
        for name, folder in FOLDERS.items()
        for source in (ROOT / folder).rglob("*")
        if source.is_file() and "__pycache__" not in source.parts
        # The native path's sources are in the source archive, its library in the wheel.
        if "native" not in source.parts or source.suffix == ".py"
    }


def test_every_link_of_the_package_points_to_the_sibling_folder() -> None:
    assert {str(link.readlink()) for link in LINKS} == {f"../{link.name}" for link in LINKS}
    parts = {init.parent.name for init in ROOT.glob("*/__init__.py")}
    assert {link.name for link in LINKS} == parts - {"mq", "bench", "docs", "tests"}


def test_a_checkout_is_imported_from_its_root_without_an_installation() -> None:
    script = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'ditable' not in repr(f)]; "
        "import mq.client, mq.pipeline; print(mq.client.__file__, mq.pipeline.__file__)"
    )
    files = run(["-c", script], ROOT).split()
    assert files == [f"{ROOT}/mq/{part}/__init__.py" for part in ("client", "pipeline")]


def run(arguments: Sequence[str | Path], folder: Path, **extra: str) -> str:
    command = [sys.executable, *map(str, arguments)]
    # Compiling the native path takes half a minute: only one test does it.
    variables = {"MQ_NATIVE": "0", **os.environ, **extra}
    ended = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=110
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, because a build leaves folders next to its sources."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS.values():
        ignored = shutil.ignore_patterns("__pycache__", "target", "*.so")
        shutil.copytree(ROOT / folder, tree / folder, ignore=ignored, symlinks=True)
    for folder in ("man", "completions"):
        shutil.copytree(ROOT / folder, tree / folder)
    modules = [f"{module}.py" for module in SETUPTOOLS["py-modules"]]
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", *modules):
        shutil.copy(ROOT / name, tree)
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(["-c", BUILD, out], tree)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def sources(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive."""
    out = tmp_path_factory.mktemp("sources")
    run(["-c", BUILD_SOURCES, out], tree)
    (built,) = out.glob("*.tar.gz")
    return built


def unpacked(sources: Path, folder: Path) -> Path:
    with tarfile.open(sources) as archive:
        archive.extractall(folder, filter="data")
    return folder / sources.name.removesuffix(".tar.gz")


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"mq-{__version__}.dist-info/{name}").decode()


def test_every_folder_with_modules_is_a_package() -> None:
    bare = {
        source.parent
        for folder in FOLDERS.values()
        for source in (ROOT / folder).rglob("*.py")
        if not (source.parent / "__init__.py").exists()
    }
    assert bare == set()


def test_the_wheel_has_every_module_and_its_data_files(wheel: Path) -> None:
    in_wheel = {name for name in names_in(wheel) if name.startswith("mq/")}
    assert "mq/protocol/frame.py" in in_wheel
    assert in_wheel == files_on_disk()


def test_the_messages_of_tubemq_are_compiled_when_a_wheel_is_built(
    sources: Path, tmp_path: Path
) -> None:
    folder = unpacked(sources, tmp_path)
    made = [*folder.glob("mq/protocol/tube/*_pb2.py*")]
    assert len(made) == 6
    for path in made:
        path.unlink()
    run(["-c", BUILD, tmp_path], folder)
    (built,) = tmp_path.glob("*.whl")
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from mq.protocol.tube.messages import CloseRequestC2M as c; "
        "written = c(clientId='c', groupName='g').SerializeToString().hex(); "
        "print(sys.modules[c.__module__].__file__, written)"
    )
    module, written = run(["-c", script, built], tmp_path).split()
    assert module == f"{built}/mq/protocol/tube/master_pb2.py"
    assert written == "0a0163120167"


def test_the_wheel_is_marked_as_typed(wheel: Path) -> None:
    assert "mq/py.typed" in names_in(wheel)


def test_the_wheel_has_only_the_package_and_the_modules_for_spark(wheel: Path) -> None:
    assert {name.split("/")[0] for name in names_in(wheel)} == {
        "mq",
        "pyspark_rocketmq.py",
        "pyspark_rocketmq_store.py",
        "pyspark_tubemq.py",
        f"mq-{__version__}.data",
        f"mq-{__version__}.dist-info",
    }


def test_the_wheel_has_man_pages_and_completions_in_standard_folders(wheel: Path) -> None:
    prefix = f"mq-{__version__}.data/data/share/"
    shared = {name.removeprefix(prefix) for name in names_in(wheel) if name.startswith(prefix)}
    assert shared == {
        *(f"man/man{path.name[-1]}/{path.name}" for path in (ROOT / "man").glob("mq*.[18]")),
        "bash-completion/completions/mq",
        "zsh/site-functions/_mq",
        "fish/vendor_completions.d/mq.fish",
    }


def test_the_wheel_and_the_source_archive_have_the_units(wheel: Path, sources: Path) -> None:
    units = {path.name for path in (ROOT / "systemd").glob("mq*")}
    assert len(units) >= 8
    assert {f"mq/systemd/{name}" for name in units} <= set(names_in(wheel))
    with tarfile.open(sources) as archive:
        names = archive.getnames()
    assert {f"mq-{__version__}/mq/systemd/{name}" for name in units} <= set(names)


def test_an_installed_mq_installs_units_with_its_own_path(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "mq-1"
    venv.create(place, with_pip=False, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    # Dependencies come from this environment: only paths, without mq in development.
    (own / "depends.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = ["-m", "pip", "--python", str(place / "bin/python"), "--disable-pip-version-check"]
    # Only modules that run here are compiled.
    no_more = ("--no-deps", "--no-index", "--no-compile")
    run([*pip, "install", "--quiet", *no_more, str(wheel)], tmp_path)
    (tmp_path / "mq").symlink_to(place)
    command = [f"{tmp_path}/mq/bin/mq", "systemd", "install", "--prefix", f"{tmp_path}/usr"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    # A test's folder is in /tmp, which units cannot see, unless it is elsewhere.
    assert ended.returncode == int(tmp_path.is_relative_to("/tmp")), ended.stderr
    unit = (tmp_path / "usr/lib/systemd/system/mq-namesrv.service").read_text()
    assert f"\nExecStart={tmp_path}/mq/bin/mq namesrv -c /etc/mq/namesrv.conf\n" in unit
    version = subprocess.run([tmp_path / "mq/bin/mq", "--version"], capture_output=True, text=True)
    assert version.stdout.splitlines()[0] == f"mq {__version__}"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust compiler (cargo)")
def test_with_a_compiler_the_wheel_has_the_native_path(sources: Path, tmp_path: Path) -> None:
    compiled = {"MQ_NATIVE": "1", "CARGO_TARGET_DIR": str(ROOT / "protocol/native/target")}
    run(["-c", BUILD, tmp_path], unpacked(sources, tmp_path), **compiled)
    (built,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in built.name
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "installed")
    script = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'installed')!r}); "
        "from mq.protocol.native import native; print(native.__file__)"
    )
    library = tmp_path / "installed/mq/protocol/native/_native.abi3.so"
    assert run(["-c", script], tmp_path, **compiled) == f"{library}\n"


def test_without_a_compiler_the_wheel_is_for_every_machine(wheel: Path) -> None:
    assert wheel.name == f"mq-{__version__}-py3-none-any.whl"


def test_the_wheel_installs_the_command(wheel: Path) -> None:
    assert "mq = mq.cli.entry:app" in metadata(wheel, "entry_points.txt").splitlines()


def test_the_wheel_describes_itself(wheel: Path) -> None:
    described: Message = Parser().parsestr(metadata(wheel, "METADATA"))
    assert described["Version"] == __version__
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Requires-Python"] == ">=3.11"
    assert str(described.get_payload()).strip() == (ROOT / "README.md").read_text("utf-8").strip()
    assert f"mq-{__version__}.dist-info/licenses/LICENSE" in names_in(wheel)


def test_modules_are_imported_from_the_wheel_as_a_zip(wheel: Path, tmp_path: Path) -> None:
    # spark-submit --py-files puts an archive on sys.path in this way.
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "import mq.protocol.frame, mq.client, mq.daemons.broker.store.layout, mq.cli.main as main; "
        "import mq.protocol.tube.messages; "
        "print(mq.protocol.frame.__file__, main.__file__, sep='\\n'); "
        "sys.argv[1:] = ['--version']; main.app()"
    )
    frame, main, version, _ = run(["-c", script, wheel], tmp_path).splitlines()
    assert frame == f"{wheel}/mq/protocol/frame.py"
    assert main == f"{wheel}/mq/cli/main.py"
    assert version == f"mq {__version__}"


def test_spark_finds_the_data_source_in_the_wheel_as_a_zip(wheel: Path, tmp_path: Path) -> None:
    require_spark()
    script = (
        "import io, sys; sys.path.insert(0, sys.argv[1]); "
        "from pyspark.sql.worker.lookup_data_sources import _main; "
        "found = io.BytesIO(); _main(None, found); import mq.pipeline.source as source; "
        "print(b'rocketmq' in found.getvalue(), source.__file__)"
    )
    assert run(["-c", script, wheel], tmp_path) == f"True {wheel}/mq/pipeline/source.py\n"
