"""Consumer groups: the list, a group with its members, and changes."""

from mq.daemons.console.pages.groups import (
    creation,
    deletion,
    detail,
    listing,
    offsets,
    settings,
    stacks,
)
from mq.daemons.console.route import AnyRoute

ROUTES: tuple[AnyRoute, ...] = (
    *(*listing.ROUTES, *detail.ROUTES, *stacks.ROUTES),
    *(*creation.ROUTES, *settings.ROUTES, *deletion.ROUTES, *offsets.ROUTES),
)
