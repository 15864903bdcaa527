"""The declarations of settings match the code."""

import re
from pathlib import Path

import pytest

from mq.daemons.broker.broker_config import BrokerConfig
from mq.daemons.broker.store_config import MessageStoreConfig
from mq.daemons.config import Section
from mq.daemons.filtersrv.config import FiltersrvConfig, SandboxConfig
from mq.daemons.namesrv.config import NamesrvConfig
from mq.daemons.remoting_config import NettyClientConfig, NettyServerConfig
from mq.daemons.tls_config import TlsConfig

SECTIONS = [
    BrokerConfig,
    MessageStoreConfig,
    NettyServerConfig,
    NettyClientConfig,
    NamesrvConfig,
    FiltersrvConfig,
    SandboxConfig,
    TlsConfig,
]
DAEMONS = Path(__file__).parents[2] / "daemons"
DECLARATION = re.compile(r"^    \w+: [^=\n]+ = setting\(", re.MULTILINE)


# A daemon may have a setting with the name of another daemon's, without effect.
ELSEWHERE = {BrokerConfig: "namesrv", MessageStoreConfig: "namesrv", NamesrvConfig: "broker"}


def words(section: type[Section]) -> set[str]:
    """The words in the daemons' code for a section, without the lines that declare settings."""
    elsewhere = ELSEWHERE.get(section, "")
    paths = [path for path in sorted(DAEMONS.rglob("*.py")) if elsewhere not in path.parts]
    text = "\n".join(path.read_text() for path in paths)
    return set(re.findall(r"\w+", DECLARATION.sub("", text)))


@pytest.mark.parametrize("section", SECTIONS)
def test_exactly_the_settings_with_an_effect_are_read(section: type[Section]) -> None:
    used = words(section)
    wrong = [
        f"{declared.name}: effect={declared.effect}"
        for declared in section.settings().values()
        if (declared.attribute in used) != declared.effect
    ]
    assert wrong == []


@pytest.mark.parametrize("section", SECTIONS)
def test_only_settings_with_an_effect_may_be_updated(section: type[Section]) -> None:
    assert [s.name for s in section.settings().values() if s.updatable and not s.effect] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_has_a_description(section: type[Section]) -> None:
    assert [s.name for s in section.settings().values() if not s.doc] == []
