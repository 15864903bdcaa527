"""Bits of integers on the wire: of a stored message, a pull, a permission, a topic.

Plain integers instead of IntFlag: they are tested once per message on the hot path, and `&` of two
IntFlag members creates an object.
"""


class SysFlag:
    """The sysFlag of a message (org.apache.rocketmq.common.sysflag.MessageSysFlag)."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_NOT = 0
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    TRANSACTION_MASK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300
    COMPRESSION_MASK = 0x700  # 0 with COMPRESSED set is zlib, as clients before 4.9.4 send it
    COMPRESSION_SHIFT = 8


class PullSysFlag:
    """The sysFlag of a pull request (org.apache.rocketmq.common.sysflag.PullSysFlag)."""

    COMMIT_OFFSET = 1  # store commitOffset of the header
    SUSPEND = 2  # wait for messages if there are none
    SUBSCRIPTION = 4  # use the subscription of the header instead of that of the heartbeat
    CLASS_FILTER = 8
    LITE_PULL = 16


class TopicSysFlag:
    """The topicSysFlag of a topic (org.apache.rocketmq.common.sysflag.TopicSysFlag)."""

    UNIT = 1
    UNIT_SUB = 2


class SubscriptionSysFlag:
    """The sysFlag of a subscription (org.apache.rocketmq.common.sysflag.SubscriptionSysFlag)."""

    UNIT = 1


class Permission:
    """Permissions of a topic or broker (org.apache.rocketmq.common.constant.PermName)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


def permission_text(permission: int) -> str:
    """Three letters: "RWX", a dash for a missing permission. PRIORITY has no letter
    (perm2String).
    """
    return (
        ("R" if permission & Permission.READ else "-")
        + ("W" if permission & Permission.WRITE else "-")
        + ("X" if permission & Permission.INHERIT else "-")
    )
