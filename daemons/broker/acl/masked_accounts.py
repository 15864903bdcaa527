"""The accounts in the form shown to administrators: without the secret keys."""

from typing import Any

from mq.daemons.acl.accounts import text
from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles, load
from mq.protocol.bodies import AclConfig, PlainAccessConfig


def shown(files: AclFiles) -> AclConfig:
    """The current content of the files (PlainPermissionManager.getAllAclConfig of 4.9.7).

    Raises AclError for a file that cannot be read.
    """
    config = AclConfig()
    for path in files.paths():
        data = load(path)
        config.global_white_addrs += _texts(data.get("globalWhiteRemoteAddresses"))
        config.plain_access_configs += [_account(item) for item in data.get("accounts") or ()]
    return config


def _account(data: object) -> PlainAccessConfig:
    if not isinstance(data, dict):
        raise AclError("accounts: each has to be a mapping with an accessKey and a secretKey")
    return PlainAccessConfig(
        access_key=text(data.get("accessKey")) or "",
        white_remote_address=text(data.get("whiteRemoteAddress")),
        admin=(text(data.get("admin")) or "").lower() == "true",
        default_topic_perm=text(data.get("defaultTopicPerm")),
        default_group_perm=text(data.get("defaultGroupPerm")),
        topic_perms=_texts(data["topicPerms"]) if data.get("topicPerms") is not None else None,
        group_perms=_texts(data["groupPerms"]) if data.get("groupPerms") is not None else None,
    )


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list):
        return []
    return [text(value) or "" for value in values]
