"""What users may do, in order, and the names of roles."""

from enum import IntEnum


class Permission(IntEnum):
    """What a user may do; each includes those before it."""

    READ = 1
    BODIES = 2  # see what messages hold
    OPERATE = 3  # send, reset, resend, change settings
    ADMINISTER = 4  # create, delete, accounts


#: Roles by the names that the file of accounts has.
ROLES = {
    "viewer": Permission.READ,
    "reader": Permission.BODIES,
    "operator": Permission.OPERATE,
    "administrator": Permission.ADMINISTER,
}
