"""Classes from files: those of an operator, while consumers may upload none."""

import asyncio
import logging
from pathlib import Path

from mq.client.machine import files
from mq.daemons.filtersrv.classes import Classes, NoClass, TooMany
from mq.daemons.filtersrv.config import FiltersrvSettings, SandboxConfig
from mq.daemons.filtersrv.sandbox.process import FilterFailed, SandboxEnded

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0  # FilterClassManager: each minute


def read_class(config: SandboxConfig, name: str) -> tuple[bytes | None, str]:
    """The source of a class whose name has been checked; or None, and why. May block."""
    path = Path(config.filter_class_folder) / f"{name}.py"
    try:
        data = files.read_bytes(path, config.filter_class_max_bytes + 1)
    except FileNotFoundError:
        return None, (
            f"uploads are off (clientUploadFilterClassEnable), and there is no file {name}.py in "
            "filterClassFolder"
        )
    except OSError as error:
        return None, f"its file cannot be read: {error.strerror}"
    if len(data) > config.filter_class_max_bytes:
        return None, f"its file has more than {config.filter_class_max_bytes} bytes"
    return data, ""


async def look_again(settings: FiltersrvSettings, classes: Classes) -> None:
    """Take what has changed in the folder, each minute; until cancelled."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await look(settings, classes)


async def look(settings: FiltersrvSettings, classes: Classes) -> None:
    """Take what has changed in the folder. A file that cannot be used leaves the class in force."""
    for key, kept in list(classes.table.items()):
        source, why = await asyncio.to_thread(read_class, settings.sandbox, kept.name)
        if classes.table.get(key) is not kept:  # its group has chosen another one meanwhile
            continue
        if source is None:
            kept.why = why
            continue
        used = kept.used
        try:
            await classes.register(key, kept.name, source)
        except (FilterFailed, SandboxEnded, NoClass, TooMany, OSError) as error:
            log.error("class %s of %s stays as it was: %s", kept.name, key, error)
        if key in classes.table:
            classes.table[key].used = used  # this was no use of it
