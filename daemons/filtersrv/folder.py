"""Classes from an operator's files, used while uploads are off."""

import asyncio
import logging
from pathlib import Path

from mq.client.machine import files
from mq.daemons.filtersrv.classes import Classes, NoClass, TooMany
from mq.daemons.filtersrv.config import FiltersrvSettings, SandboxConfig
from mq.daemons.filtersrv.sandbox.process import FilterFailed, SandboxEnded

log = logging.getLogger(__name__)

CHECK_SECONDS = 60.0  # FilterClassManager: each minute


def read_class(config: SandboxConfig, name: str) -> tuple[bytes | None, str]:
    """The source of a class whose name has been checked; or None, and the reason. May block."""
    path = Path(config.filter_class_folder) / f"{name}.py"
    try:
        data = files.read_bytes(path, config.filter_class_max_bytes + 1)
    except FileNotFoundError:
        return None, (
            f"uploads are off (clientUploadFilterClassEnable), and filterClassFolder has no file "
            f"{name}.py"
        )
    except OSError as error:
        return None, f"cannot read its file: {error.strerror}"
    if len(data) > config.filter_class_max_bytes:
        return None, f"its file has more than {config.filter_class_max_bytes} bytes"
    return data, ""


async def watch_folder(settings: FiltersrvSettings, classes: Classes) -> None:
    """Apply changes in the folder every minute, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        await check_folder(settings, classes)


async def check_folder(settings: FiltersrvSettings, classes: Classes) -> None:
    """Apply changes in the folder. An unusable file leaves the class in force."""
    for key, kept in list(classes.table.items()):
        source, why = await asyncio.to_thread(read_class, settings.sandbox, kept.name)
        if classes.table.get(key) is not kept:  # its group has chosen another class meanwhile
            continue
        if source is None:
            kept.why = why
            continue
        used = kept.used
        try:
            await classes.register(key, kept.name, source)
        except (FilterFailed, SandboxEnded, NoClass, TooMany, OSError) as error:
            log.error("keeping the old class %s of %s: %s", kept.name, key, error)
        if key in classes.table:
            classes.table[key].used = used  # this check does not count as a use
