"""The sender of a request: identified by its signature and the ACL files, or by its address."""

import asyncio
import hmac
import logging
from collections.abc import Mapping

from mq.daemons.acl.accounts import Account
from mq.daemons.acl.addresses import parts_of
from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles, Rules
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.signature import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, content, signature

log = logging.getLogger(__name__)

# Seconds between checks of the files (Java: AclFileWatchService, half a second).
WATCH_SECONDS = 0.5


class Signers:
    """The accounts in force. Raises ConfigError if the files are invalid at the start."""

    def __init__(self, files: AclFiles) -> None:
        self.files = files
        self.refused = 0
        # In addition to those of the files: accounts of processes that this one starts. Never
        # shown, never saved.
        self.own_accounts: dict[str, Account] = {}
        if not files.paths():
            raise ConfigError(
                f"aclEnable=true, but there is neither {files.default} nor a file in "
                f"{files.folder}: write one with an account, or set rocketmqHome to its folder"
            )
        self._fingerprint = files.fingerprint()
        try:
            self.rules: Rules = files.read()
        except AclError as error:
            raise ConfigError(str(error)) from None
        log.info("access control: %d accounts", len(self.rules.accounts))

    def signer(self, fields: Mapping[str, str], body: bytes, host: str) -> Account | None:
        """The account that signed a request; None if its address needs no signature.

        Raises AclError if neither applies.
        """
        rules = self.rules
        parts = parts_of(host)
        for matches in rules.global_matchers:
            if matches(parts):
                return None
        access_key = fields.get(ACCESS_KEY)
        if access_key is None:
            raise AclError("No accessKey is configured")
        account = rules.accounts.get(access_key) or self.own_accounts.get(access_key)
        if account is None:
            raise AclError(f"No acl config for {access_key}")
        if account.matches(parts):
            return None
        if not is_signed(account, fields, body):
            raise AclError(f"Check signature failed for accessKey={access_key}")
        return account

    def refusal(self, code: int, channel: Channel, error: AclError) -> Refused:
        """Like the function `refusal`, and counts the refusal."""
        self.refused += 1
        return refusal(code, channel, error)

    def reload(self) -> None:
        """Read the files again; if one of them is invalid, the rules do not change."""
        self._fingerprint = self.files.fingerprint()
        try:
            rules = self.files.read()
        except AclError as error:
            log.error("keeping the old access control rules: %s", error)
            return
        self.rules = rules
        log.info("access control reloaded: %d accounts", len(rules.accounts))

    async def watch(self) -> None:
        """Read the files again whenever they change."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                changed = self.files.fingerprint() != self._fingerprint
            except OSError as error:
                log.error("cannot check the ACL files: %s", error.strerror)
                continue
            if changed:
                self.reload()


def refusal(code: int, channel: Channel, error: AclError) -> Refused:
    """The exception for a request that is not allowed; logged at most once per second for each
    peer.
    """
    log.warning(
        "request %d of %s refused: %s",
        code,
        channel.remote,
        error,
        extra={"peer": channel.remote_address[0]},
    )
    return Refused(ResponseCode.NO_PERMISSION, str(error))


def is_signed(account: Account, fields: Mapping[str, str], body: bytes) -> bool:
    """Whether a request has a valid signature of an account."""
    given = fields.get(SIGNATURE)
    if given is None or not given.isascii():
        return False
    try:
        made = signature(account.secret_key, content(fields, body))
        if hmac.compare_digest(made, given):
            return True
        # Clients either sign a field of QUERY_MESSAGE or do not: see mq.protocol.signature.
        if UNIQUE_KEY_QUERY not in fields:
            return False
        full = content(fields, body, with_unique_key_query=True)
        return hmac.compare_digest(signature(account.secret_key, full), given)
    except TypeError:  # a field that is not text
        return False


def account_of(command: Command) -> str:
    """The access key of a request that has passed the guard; "" if it has none."""
    return command.fields.get(ACCESS_KEY, "")
