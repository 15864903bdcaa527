"""Access control: accounts of 4.9.8 (plain_acl.yml), users and policies of 5.x."""

from mq.protocol.codes import ONLY_4, SINCE_5, RequestCode
from mq.protocol.headers.schema import Header


class CreateAccessConfigRequestHeader(
    Header, request=RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, release=ONLY_4
):
    """Create or change an account; lists are joined by commas."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(
    Header, request=RequestCode.DELETE_ACL_CONFIG, release=ONLY_4
):
    """Delete an account."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(
    Header, request=RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, release=ONLY_4
):
    """Set the addresses that are allowed without an account."""

    global_white_addrs: str
    acl_file_full_path: str


class GetBrokerAclConfigResponseHeader(
    Header, answers=RequestCode.GET_BROKER_CLUSTER_ACL_INFO, release=ONLY_4
):
    """The versions of a broker's ACL files."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str


class CreateUserRequestHeader(Header, request=RequestCode.AUTH_CREATE_USER, release=SINCE_5):
    """Create the user in the body."""

    username: str | None = None


class UpdateUserRequestHeader(Header, request=RequestCode.AUTH_UPDATE_USER, release=SINCE_5):
    """Change a user."""

    username: str | None = None


class DeleteUserRequestHeader(Header, request=RequestCode.AUTH_DELETE_USER, release=SINCE_5):
    """Delete a user."""

    username: str | None = None


class GetUserRequestHeader(Header, request=RequestCode.AUTH_GET_USER, release=SINCE_5):
    """Get a user."""

    username: str | None = None


class ListUsersRequestHeader(Header, request=RequestCode.AUTH_LIST_USER, release=SINCE_5):
    """List the users whose names match."""

    filter: str | None = None


class CreateAclRequestHeader(Header, request=RequestCode.AUTH_CREATE_ACL, release=SINCE_5):
    """Create the policies in the body for a subject."""

    subject: str | None = None


class UpdateAclRequestHeader(Header, request=RequestCode.AUTH_UPDATE_ACL, release=SINCE_5):
    """Change the policies of a subject."""

    subject: str | None = None


class DeleteAclRequestHeader(Header, request=RequestCode.AUTH_DELETE_ACL, release=SINCE_5):
    """Delete policies of a subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(Header, request=RequestCode.AUTH_GET_ACL, release=SINCE_5):
    """Get the policies of a subject."""

    subject: str | None = None


class ListAclsRequestHeader(Header, request=RequestCode.AUTH_LIST_ACL, release=SINCE_5):
    """List the policies that match."""

    subject_filter: str | None = None
    resource_filter: str | None = None
