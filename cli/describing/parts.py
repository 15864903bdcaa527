"""Parts that several pages share."""

from collections.abc import Iterable
from typing import Any

from mq.cli.show.result import Part
from mq.client.operations.columns import text
from mq.client.operations.describing.queries import SettingValues

_SETTINGS = (text("setting", "Setting"), text("value", "Value"), text("brokers", "Brokers"))


def settings_part(settings: Iterable[SettingValues], brokers: tuple[str, ...]) -> Part:
    """Return each setting with its value; if brokers differ, each value with its brokers."""
    rows = []
    for one in settings:
        for value, names in one.values:
            everywhere = len(names) == len(brokers) > 1
            where = "all" if everywhere else ", ".join(names)
            rows.append((one.name, "-" if value is None else value, where))
    differing = [one.name for one in settings if one.differs]
    notes = [f"Different between brokers: {', '.join(differing)}."] if differing else []
    return Part("Settings", _SETTINGS, rows, notes=notes)


def settings_data(settings: Iterable[SettingValues]) -> list[dict[str, Any]]:
    """Return the same for programs: the value at each broker."""
    return [
        {
            "name": one.name,
            "differs": one.differs,
            "values": {name: value for value, names in one.values for name in names},
        }
        for one in settings
    ]
