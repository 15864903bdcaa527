"""Topics: the list, a topic with all that is known of it, and what changes them."""

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
