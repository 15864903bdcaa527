"""Topics: the list, the details of a topic, and changes."""

from mq.daemons.console.pages.topics import (
    creation,
    deletion,
    detail,
    listing,
    offsets,
    settings,
)
from mq.daemons.console.route import AnyRoute

ROUTES: tuple[AnyRoute, ...] = (
    *(*listing.ROUTES, *detail.ROUTES),
    *(*creation.ROUTES, *settings.ROUTES, *deletion.ROUTES, *offsets.ROUTES),
)
