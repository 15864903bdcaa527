"""What access control raises."""


class AclError(Exception):
    """Something in an ACL file, or in a change of one, cannot be; or a request is not allowed.

    The texts that scripts may look for are those of Java's AclException. None has a secret in it.
    """
