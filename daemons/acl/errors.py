"""Errors of access control."""


class AclError(Exception):
    """An ACL file or a change of one is invalid, or a request is not allowed.

    Texts that scripts may search for are those of Java's AclException. None contains a secret.
    """
