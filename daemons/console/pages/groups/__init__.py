"""Consumer groups: the list, a group with its members, and what changes them."""

from mq.daemons.console.pages.groups import changes, detail, listing, stacks
from mq.daemons.console.route import AnyRoute

ROUTES: tuple[AnyRoute, ...] = (
    *(*listing.ROUTES, *detail.ROUTES, *stacks.ROUTES, *changes.ROUTES),
)
