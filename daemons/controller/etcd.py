"""etcd, by the JSON of its gRPC gateway: stores the state of controllers and TubeMQ masters.

A request goes to one endpoint after another until one replies. A request without a reply may have
been executed nevertheless: then the caller reads the state again (`registry.py`).
"""

import base64
import logging
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import orjson

from mq.client.machine import files
from mq.daemons.config import ConfigError

if TYPE_CHECKING:
    import aiohttp

    from mq.daemons.controller.config import EtcdConfig

log = logging.getLogger(__name__)

# Seconds for one endpoint. Brokers time out after 3 s; an election within etcd takes about one.
TIMEOUT = 1.5
# gRPC's codes in the gateway's replies.
_UNAUTHENTICATED = 16
_NOT_FOUND = 5
# Limit of keys per request: bounds the size of a reply, not the number of keys.
_PAGE = 500
_MOST_ANSWER = 64 * 1024 * 1024
_CHUNK = 64 * 1024


class EtcdError(Exception):
    """etcd does not reply, or its reply is an error; the text says which."""


class NoLease(EtcdError):
    """The lease has expired."""


class Pair(NamedTuple):
    """A key and its value. Both revisions are those of the whole etcd store."""

    key: str
    value: bytes
    created: int  # the revision that created the key
    changed: int  # the revision of its last change
    lease: int  # of the key, 0 for none


class Txn(NamedTuple):
    """The result of a transaction: whether all comparisons held, and etcd's revision."""

    succeeded: bool
    revision: int


class Etcd:
    """A client. An async context manager; each call raises EtcdError."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        """`endpoints` are URLs, such as "http://10.0.0.5:2379"."""
        self._endpoints = list(endpoints)
        self._tls = tls
        self._user, self._password = user, password
        self._token = ""
        self._http: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        import aiohttp  # in the extra "controller"

        self._http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT), trust_env=False
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.close()

    async def pairs(self, prefix: str) -> list[Pair]:
        """All keys with a prefix."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        request = {"key": _coded(prefix), "range_end": _coded(end), "limit": str(_PAGE)}
        found: list[Pair] = []
        while True:
            answer = await self._ask("kv/range", request)
            found += [_pair(entry) for entry in answer.get("kvs", ())]
            if not answer.get("more"):
                return found
            request["key"] = _coded(f"{found[-1].key}\0")
            # All pages have the same revision.
            request.setdefault("revision", answer["header"]["revision"])

    async def get(self, key: str) -> Pair | None:
        """One key, None if it does not exist."""
        answer = await self._ask("kv/range", {"key": _coded(key)})
        for entry in answer.get("kvs", ()):
            return _pair(entry)
        return None

    async def put_if(
        self,
        key: str,
        value: bytes | None,
        unless_changed: Mapping[str, Mapping[str, int]],
        lease: int = 0,
    ) -> Txn:
        """Like `change_if` for one key."""
        return await self.change_if({key: value}, unless_changed, lease)

    async def change_if(
        self,
        values: Mapping[str, bytes | None],
        unless_changed: Mapping[str, Mapping[str, int]],
        lease: int = 0,
    ) -> Txn:
        """Set keys, or with None delete them, all or none, if all conditions hold: by key,
        "created" or "changed" and the expected revision, 0 for a key that does not exist.

        Also raises EtcdError if an endpoint has not replied, and the next one reports that a
        condition does not hold any more: the first endpoint may have executed the change itself.
        """
        compare = [
            {
                "key": _coded(name),
                "result": "EQUAL",
                "target": "CREATE" if what == "created" else "MOD",
                ("create_revision" if what == "created" else "mod_revision"): str(revision),
            }
            for name, wanted in unless_changed.items()
            for what, revision in wanted.items()
        ]
        changes = [_change(key, value, lease) for key, value in values.items()]
        failures: list[str] = []
        answer = await self._ask("kv/txn", {"compare": compare, "success": changes}, failures)
        if failures and not answer.get("succeeded"):
            raise EtcdError(
                f"{', '.join(values)} may be set already, without a reply: {'; '.join(failures)}"
            )
        return Txn(bool(answer.get("succeeded")), int(answer["header"]["revision"]))

    async def grant(self, seconds: int) -> int:
        """Create a lease; returns its id."""
        answer = await self._ask("lease/grant", {"TTL": str(seconds)})
        return int(answer["ID"])

    async def keep_alive(self, lease: int) -> None:
        """Renew a lease. Raises NoLease."""
        answer = await self._ask("lease/keepalive", {"ID": str(lease)})
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            raise NoLease(f"the lease {lease:x} has expired")

    async def revoke(self, lease: int) -> None:
        """Revoke a lease, which deletes its keys."""
        await self._ask("lease/revoke", {"ID": str(lease)})

    async def _ask(
        self, path: str, request: Mapping[str, Any], failures: list[str] | None = None
    ) -> dict[str, Any]:
        """The reply; `failures` collects the endpoints that did not reply."""
        failures = [] if failures is None else failures
        if self._user and not self._token:
            await self._log_in()
        status, answer = await self._from_any(path, request, failures)
        if (
            self._user and answer.get("code") == _UNAUTHENTICATED
        ):  # tokens are valid for some minutes
            await self._log_in()
            status, answer = await self._from_any(path, request, failures)
        if status != 200:
            text = str(answer.get("message") or answer.get("error") or answer)[:300]
            if answer.get("code") == _NOT_FOUND and path.startswith("lease/"):
                raise NoLease(text)
            raise EtcdError(f"etcd refused {path}: {text}")
        return answer

    async def _log_in(self) -> None:
        self._token = ""
        request = {"name": self._user, "password": self._password}
        status, answer = await self._from_any("auth/authenticate", request, [])
        if status != 200 or not answer.get("token"):
            raise EtcdError(f"etcd refused etcdUser={self._user}: {answer.get('message', status)}")
        self._token = answer["token"]

    async def _from_any(
        self, path: str, request: Mapping[str, Any], failures: list[str]
    ) -> tuple[int, dict[str, Any]]:
        """Ask the endpoints, starting with the last one that replied, until one replies."""
        for endpoint in list(self._endpoints):
            try:
                found = await self._from(endpoint, path, request)
            except (OSError, TimeoutError, ValueError, _client_error()) as error:
                failures.append(f"{endpoint}: {error or type(error).__name__}")
                continue
            if found[0] == 503:  # this endpoint has no leader, or is not ready
                failures.append(f"{endpoint}: {found[1].get('message', 'unavailable')}")
                continue
            if self._endpoints[0] != endpoint:
                self._endpoints.remove(endpoint)
                self._endpoints.insert(0, endpoint)
            return found
        raise EtcdError(f"etcd does not reply: {'; '.join(failures)}")

    async def _from(
        self, endpoint: str, path: str, request: Mapping[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": self._token} if self._token else {}
        async with self._http.post(
            f"{endpoint}/v3/{path}",
            data=orjson.dumps(request),
            headers=headers,
            ssl=self._tls if self._tls is not None else True,
            allow_redirects=False,
        ) as response:
            parts, size = [], 0
            async for part in response.content.iter_chunked(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > _MOST_ANSWER:
                    raise ValueError(f"a reply of more than {_MOST_ANSWER} bytes")
            answer = orjson.loads(b"".join(parts))
            if not isinstance(answer, dict):
                raise ValueError("the reply is not a JSON object")
            return response.status, answer


def client_of(config: "EtcdConfig") -> Etcd:
    """The configured client. Raises ConfigError."""
    try:
        import aiohttp  # noqa: F401
    except ImportError:
        raise ConfigError(
            "the etcd client needs aiohttp, which is not installed: pip install 'mq[controller]'"
        ) from None
    return Etcd(
        config.endpoints,
        tls=tls_context(config.etcd_ca_file, config.etcd_cert_file, config.etcd_key_file),
        user=config.etcd_user,
        password=read_password(config.etcd_password_file),
    )


def tls_context(ca: str, certificate: str, key: str) -> ssl.SSLContext | None:
    """The TLS context for https endpoints; None for the system's defaults. Raises ConfigError."""
    if not (ca or certificate or key):
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate or key:
            context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"etcdCaFile, etcdCertFile or etcdKeyFile: {error}") from None
    return context


def read_password(path: str) -> str:
    """The first line of a file, so that the settings contain no secret. Raises ConfigError."""
    if not path:
        return ""
    try:
        lines = files.read_bytes(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"etcdPasswordFile: {path}: {error}") from None
    return lines[0] if lines else ""


def _client_error() -> type[Exception]:
    import aiohttp

    return aiohttp.ClientError


def _change(key: str, value: bytes | None, lease: int) -> dict[str, Any]:
    if value is None:
        return {"requestDeleteRange": {"key": _coded(key)}}
    put = {"key": _coded(key), "value": base64.b64encode(value).decode()}
    return {"requestPut": {**put, "lease": str(lease)} if lease else put}


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _pair(entry: Mapping[str, str]) -> Pair:
    return Pair(
        base64.b64decode(entry["key"]).decode(),
        base64.b64decode(entry.get("value", "")),
        int(entry["create_revision"]),
        int(entry["mod_revision"]),
        int(entry.get("lease", 0)),
    )
