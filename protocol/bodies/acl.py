"""Access control: accounts of 4.9.8, users and policies of 5.x."""

from mq.protocol.bodies.common import DataVersion
from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import ONLY_4, SINCE_5


class PlainAccessConfig(Body):
    """An account of plain_acl.yml."""

    access_key: str = ""
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class AclConfig(Body):
    """All accounts of a broker."""

    global_white_addrs: list[str] = field(factory=list)
    plain_access_configs: list[PlainAccessConfig] = field(factory=list)


class ClusterAclVersionInfo(Body, release=ONLY_4):
    """The versions of the ACL files of a broker."""

    broker_name: str | None = None
    broker_addr: str | None = None
    acl_config_data_version: DataVersion | None = None
    all_acl_config_data_version: dict[str, DataVersion] = field(factory=dict)
    cluster_name: str | None = None


class UserInfo(Body, release=SINCE_5):
    """A user."""

    username: str | None = None
    password: str | None = None
    user_type: str | None = None
    user_status: str | None = None


class PolicyEntryInfo(Body, release=SINCE_5):
    """The actions that are allowed or denied on a resource."""

    resource: str | None = None
    actions: list[str] = field(factory=list)
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(Body, release=SINCE_5):
    """A list of policy entries."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] = field(factory=list)


class AclInfo(Body, release=SINCE_5):
    """The policies of a subject."""

    subject: str | None = None
    policies: list[PolicyInfo] = field(factory=list)
