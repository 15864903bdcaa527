"""Every target by name; those that need a daemon or a store are made when they are asked for."""

from tests.fuzzing.targets import TARGETS, Target

MADE = ("broker", "namesrv", "store")
NAMES = (*TARGETS, *MADE)


def load(name: str) -> Target:
    """The target of that name; leaving it ends what it needs. Raises KeyError if there is none."""
    if name in ("broker", "namesrv"):
        from tests.fuzzing.requests import Daemon

        daemon = Daemon(name)
        return Target(daemon.run, 512, daemon.close)
    if name == "store":
        from tests.fuzzing.stores import Stores

        stores = Stores()
        return Target(stores.run, 256, stores.close)
    return TARGETS[name]
