"""Accounts of 4.9, users and policies of 5.x, broker by broker."""

from mq.daemons.console.pages.accounts import (
    account_changes,
    overview,
    policy_changes,
    user_changes,
)
from mq.daemons.console.route import AnyRoute

ROUTES: tuple[AnyRoute, ...] = (
    *(*overview.ROUTES, *account_changes.ROUTES, *user_changes.ROUTES, *policy_changes.ROUTES),
)
