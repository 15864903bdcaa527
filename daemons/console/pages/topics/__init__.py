"""Topics: the list, a topic with all that is known of it, and what changes them."""

from mq.daemons.console.pages.topics import changes, detail, listing
from mq.daemons.console.route import AnyRoute

ROUTES: tuple[AnyRoute, ...] = (*listing.ROUTES, *detail.ROUTES, *changes.ROUTES)
