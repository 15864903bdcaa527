"""The permissions of users, in order, and the names of roles."""

from enum import IntEnum


class Permission(IntEnum):
    """A permission of a user; each includes the earlier ones."""

    READ = 1
    BODIES = 2  # see the bodies of messages
    OPERATE = 3  # send, reset, resend, change settings
    ADMINISTER = 4  # create, delete, accounts


# Roles by the names in the file of accounts.
ROLES = {
    "viewer": Permission.READ,
    "reader": Permission.BODIES,
    "operator": Permission.OPERATE,
    "administrator": Permission.ADMINISTER,
}
