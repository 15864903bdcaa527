"""The man pages match the declarations, and mandoc has no warnings."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mq.cli import catalog
from mq.cli.manual import roff
from mq.cli.manual.descriptions import commands
from mq.cli.manual.pages import pages
from mq.cli.runtime.status import Status
from mq.cli.show.record_format import _LETTERS, MEANINGS
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.config import NamesrvSettings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {path.removeprefix("man/"): text for path, text in pages()}


def test_mandoc_has_nothing_to_say(texts: dict[str, str], tmp_path: Path) -> None:
    mandoc = shutil.which("mandoc")
    if mandoc is None:
        if os.environ.get("CI") == "true":
            pytest.fail("mandoc is not installed; .ci/run installs it")
        pytest.skip("mandoc is not installed")
    for name, text in texts.items():
        # It searches the system's pages for each reference, which takes milliseconds, and all pages
        # have references to all: so it gets the whole list once.
        head, others = see_also(text)
        shown = others if name == "mq.1" else others[:1]
        (tmp_path / name).write_text(head + " ,\n".join(shown) + "\n")
    ended = subprocess.run(
        [mandoc, "-T", "lint", *texts], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    said = ended.stdout.splitlines() + ended.stderr.splitlines()
    # It searches for the other pages in the installed directories; the next tests check them here.
    assert [line for line in said if "referenced manual not found: Xr mq" not in line] == []


def see_also(text: str) -> tuple[str, list[str]]:
    """Return a page up to its last section, and the pages that it names there."""
    head, title, others = text.partition(".Sh SEE ALSO\n")
    return head + title, others.removesuffix("\n").split(" ,\n")


def test_each_page_ends_with_a_list_of_all_others(texts: dict[str, str]) -> None:
    first, others = see_also(texts["mq.1"])
    everything = [".Xr mq 1", *others]
    assert first.endswith("\n.Sh SEE ALSO\n")
    for name, text in texts.items():
        own = f".Xr {name.rpartition('.')[0]} "
        assert see_also(text)[1] == [line for line in everything if not line.startswith(own)], name


def test_pages_refer_to_pages_that_there_are(texts: dict[str, str]) -> None:
    for name, text in texts.items():
        for page, section in re.findall(r"^\.Xr (\S+) (\d)", text, re.MULTILINE):
            assert f"{page}.{section}" in texts, name


def test_every_command_stands_in_the_overview_and_in_its_group(texts: dict[str, str]) -> None:
    for group, names in catalog.GROUPS.items():
        for name in names:
            assert f".It Cm {name}\n" in texts["mq.1"]
            if group == "daemon":
                assert f".Nm mq {name}\n" in texts[f"mq-{name.replace(' ', '-')}.8"]
            else:
                assert f".Ss {roff.escape(name)}\n" in texts[f"mq-{group}.1"]


def test_every_own_option_stands_in_its_page(texts: dict[str, str]) -> None:
    for command in commands():
        daemon = f"mq-{command.name.replace(' ', '-')}.8"
        page = texts[daemon if command.group == "daemon" else f"mq-{command.group}.1"]
        for option in command.own:
            for flag in option.flags:
                assert f"Fl {roff.argument(flag[1:])}" in page, (command.name, flag)


@pytest.mark.parametrize("daemon", ["namesrv", "broker", "standalone"])
def test_every_setting_stands_with_its_default_in_the_page_of_its_daemon(
    daemon: str, texts: dict[str, str]
) -> None:
    settings = NamesrvSettings() if daemon == "namesrv" else BrokerSettings()
    page = texts[f"mq-{daemon}.8"]
    for section in settings.sections:
        for setting, value in section.described():
            entry = page.split(f".It Va {setting.name}\n")[1].split(".It ")[0]
            assert f"Default: {value or 'empty'}." in entry.replace("\\-", "-").replace(
                "\\(ti", "~"
            ).replace("\n", " "), setting.name


def test_pages_do_not_depend_on_the_machine(
    texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.setattr(os, "cpu_count", lambda: 97)
    monkeypatch.setattr(socket, "gethostname", lambda: "host-of-tests")
    monkeypatch.setenv("HOME", "/home/of-tests")
    monkeypatch.setenv("ROCKETMQ_HOME", "/rocketmq/of-tests")
    monkeypatch.setenv("NAMESRV_ADDR", "10.97.97.97:9876")
    assert {path.removeprefix("man/"): text for path, text in pages()} == texts


def test_every_exit_status_is_documented(texts: dict[str, str]) -> None:
    for status in Status:
        assert f".It {int(status)}\n" in texts["mq.1"]


def test_every_variable_that_commands_read_is_documented(texts: dict[str, str]) -> None:
    # As `variables.get("MQ_DEBUG")`, and as `("acl_file", "MQ_ACL_FILE", "aclFile")`.
    pattern = re.compile(r'(?:variables(?:\.get\(|\[)|_(?:file|config)", )"([A-Z_]+)"')
    read = {
        name
        for source in (ROOT / "cli").rglob("*.py")
        for name in pattern.findall(source.read_text("utf-8"))
    }
    documented = set(re.findall(r"^\.It Ev (\S+)$", "".join(texts.values()), re.MULTILINE))
    assert {"MQ_DEBUG", "MQ_ACL_FILE", "NAMESRV_ADDR"} <= read
    # Those of the system are in the text of the previous variables.
    assert read - documented == {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}


def test_every_sign_of_a_message_format_is_documented() -> None:
    signs = {sign.removeprefix("%")[:1] for sign in MEANINGS if sign.startswith("%")}
    assert signs == {*_LETTERS, "b", "s", "P", "%"}
    assert not re.search("[a-z][A-Z]", " ".join(MEANINGS.values()))  # not the name of a class


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (".start", r"\&.start"),
        ("a - b \\ c", r"a \- b \e c"),
        ("One. Two.", "One.\nTwo."),
        ("tü", r"t\[u00FC]"),
    ],
)
def test_text_means_nothing_to_roff(words: str, expected: str) -> None:
    assert roff.text(words) == expected


def test_a_word_that_is_a_macro_is_quoted() -> None:
    assert roff.argument("Fl") == r"\&Fl"
    assert roff.argument("%T") == r"\&%T"
    assert roff.argument("two words") == '"two words"'
