"""The pages, in the order of the menu: a module for each subject, with its ``ROUTES``."""

from importlib import import_module

from mq.daemons.console.route import AnyRoute

#: Modules of this package, in the order of the menu. Each has ``ROUTES``.
MODULES: tuple[str, ...] = (
    "overview",
    "clusters",
    "name_servers",
    "clients",
    "topics",
    "groups",
    "producers",
    "messages",
    "message",
    "send",
    "tail",
    "dead_letters",
    "traces",
    "waiting",
    "transactions",
    "accounts",
    "history",
    "audit",
    "search",
)


def all_routes() -> tuple[AnyRoute, ...]:
    """Return the routes of all pages."""
    found: list[AnyRoute] = []
    for name in MODULES:
        found += import_module(f"{__name__}.{name}").ROUTES
    return tuple(found)
