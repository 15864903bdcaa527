"""Reads, verifies and repairs a store that no broker uses. `repair` is a module."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.daemons.broker.store.tools.offline import Hole as Hole
    from mq.daemons.broker.store.tools.offline import OfflineLog as OfflineLog
    from mq.daemons.broker.store.tools.offline import OpenFiles as OpenFiles
    from mq.daemons.broker.store.tools.offline import ReadOnlyFile as ReadOnlyFile
    from mq.daemons.broker.store.tools.repair import copy_store as copy_store
    from mq.daemons.broker.store.tools.verification import Verification as Verification
    from mq.daemons.broker.store.tools.verification import VerificationReport as VerificationReport
    from mq.daemons.broker.store.tools.verification import index_files as index_files
    from mq.daemons.broker.store.tools.verification import read_queues as read_queues

_MODULE_OF = {
    "Hole": "mq.daemons.broker.store.tools.offline",
    "OfflineLog": "mq.daemons.broker.store.tools.offline",
    "OpenFiles": "mq.daemons.broker.store.tools.offline",
    "ReadOnlyFile": "mq.daemons.broker.store.tools.offline",
    "Verification": "mq.daemons.broker.store.tools.verification",
    "VerificationReport": "mq.daemons.broker.store.tools.verification",
    "copy_store": "mq.daemons.broker.store.tools.repair",
    "index_files": "mq.daemons.broker.store.tools.verification",
    "read_queues": "mq.daemons.broker.store.tools.verification",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value
