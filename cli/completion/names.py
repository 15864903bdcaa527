"""Current names for the completion of a value: topics, groups, addresses and so on.

The kind of a value (`mq.cli.manual.kinds`) selects the names. Those of a cluster are cached for ten
seconds in a private file per cluster.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mq.cli.runtime.env import Environment

if TYPE_CHECKING:
    from mq.cli.runtime.call import Call

FRESH = 10.0  # seconds for which cached names are not fetched again
USABLE = 3600.0  # seconds for which old names are used while the cluster does not answer
# The timeout of requests in seconds; MQ_COMPLETION_TIMEOUT overrides it.
TIMEOUT = 0.3

_FAILED = "failed"  # the cache key for the time of the last failure

_SHARED = {
    "-n": "namesrv_addr",
    "--namesrvAddr": "namesrv_addr",
    "--context": "context",
    "--acl-file": "acl_file",
    "--tls-config": "tls_config",
}
_TOPIC_FLAGS = ("-t", "--topic", "--topicName")


def matching(kind: str, prefix: str, words: list[str], environment: Environment) -> list[str]:
    """Return the names of a kind that start with `prefix`. `words` are those of the line before it.

    Raises errors of the cluster if no older names are cached.
    """
    return [
        name
        for name in _own_first(kind, _names(kind, words, environment))
        # There may be many retry and dead letter topics: offer them only after %.
        if (kind != "topics" or prefix or not name.startswith("%"))
        and name.startswith(prefix)
        and name.isprintable()
        and " " not in name
    ]


def _own_first(kind: str, names: list[str]) -> list[str]:
    """Return the names, with the rarely needed ones of the system at the end."""
    from mq.protocol.names import PREDEFINED_GROUPS, is_system_group

    if kind == "groups":
        return sorted(names, key=lambda name: name in PREDEFINED_GROUPS or is_system_group(name))
    return sorted(names, key=_is_systems_topic) if kind == "topics" else names


def _is_systems_topic(name: str) -> bool:
    from mq.protocol.names import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS

    return name in SYSTEM_TOPICS or name.startswith((SYSTEM_TOPIC_PREFIX, "%"))


def _names(kind: str, words: list[str], environment: Environment) -> list[str]:
    if kind == "commands":
        return _commands()
    if kind == "jobs":
        from mq.pipeline.jobs import JOBS

        return list(JOBS)
    if kind == "contexts":
        return sorted(_contexts(environment))
    if kind == "nameServers":
        known = {values.get("namesrvAddr", "") for values in _contexts(environment).values()}
        return sorted((known | {environment.variables.get("NAMESRV_ADDR", "")}) - {""})
    fetch = _FETCHERS[kind]
    from mq.cli.runtime.call import resolve

    call = resolve(environment, "complete", _shared_values(words))
    call.timeout = float(environment.variables.get("MQ_COMPLETION_TIMEOUT") or TIMEOUT)
    del call.name_servers[2:]
    topic = (_value(words, _TOPIC_FLAGS) or _first_word(words)) if kind == "keys" else None
    if kind == "keys" and not topic:
        return []
    return _cached(call, f"{kind} {topic or ''}", lambda: fetch(call, topic))


def _commands() -> list[str]:
    from mq.cli import catalog

    names = [*(name for names in catalog.GROUPS.values() for name in names), *catalog.ALIASES]
    return list(dict.fromkeys(name.split()[0] for name in names))


def _contexts(environment: Environment) -> dict[str, dict[str, str]]:
    from mq.cli.runtime.context import Contexts

    return Contexts.load(environment.config_directory).contexts


def _shared_values(words: list[str]) -> dict[str, str]:
    """Return the options of the line that choose the cluster, wherever they are."""
    values = {}
    for flag, name in _SHARED.items():
        value = _value(words, (flag,))
        # Some commands have their own -n, which is not an address.
        if value is not None and not (flag == "-n" and ":" not in value):
            values[name] = value
    return values


def _value(words: list[str], flags: tuple[str, ...]) -> str | None:
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            if equals:
                return value
            if index + 1 < len(words):
                return words[index + 1]
    return None


def _first_word(words: list[str]) -> str | None:
    """Return the first word after the command: in commands about message keys it is the topic."""
    from mq.cli import catalog
    from mq.cli.runtime import global_options

    after = global_options.after(words)
    found = catalog.find(after)
    rest = after[found[2] :] if found else []
    return rest[0] if rest and not rest[0].startswith("-") else None


def _cached(call: "Call", key: str, fetch: Callable[[], list[str]]) -> list[str]:
    """Return the names from the cluster's cache file, or fetch and cache them."""
    import orjson

    path = _path(call)
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        read = orjson.loads(path.read_bytes())
        known = read if isinstance(read, dict) else {}
    now = time.time()
    at, names = _entry(known.get(key))
    usable = names if 0 <= now - at < USABLE else []
    if 0 <= now - at < FRESH or 0 <= now - _entry(known.get(_FAILED))[0] < FRESH:
        return usable
    kept = {name: entry for name, entry in known.items() if 0 <= now - _entry(entry)[0] < USABLE}
    kept.pop(_FAILED, None)
    try:
        usable = fetch()
        kept[key] = [now, usable]
    except Exception:
        kept[_FAILED] = [now, []]  # so that not every key press waits for a timeout
    _keep(path, orjson.dumps(kept))
    return usable


def _entry(entry: Any) -> tuple[float, list[str]]:
    """Return the time and names of a cache entry; an invalid one counts as old."""
    try:
        at, names = entry
        return float(at), [str(name) for name in names]
    except (TypeError, ValueError):
        return 0.0, []


def _path(call: "Call") -> Path:
    from hashlib import sha256

    # Permissions depend on the access key, so each key has its own file.
    identity = "|".join((";".join(call.name_servers), call.acl_file or "", call.tls_config or ""))
    identity += call.environment.variables.get("MQ_ACCESS_KEY", "")
    digest = sha256(identity.encode()).hexdigest()[:16]
    return call.environment.cache_directory / f"names-{digest}.json"


def _keep(path: Path, content: bytes) -> None:
    from mq.client.operations import local_files

    with suppress(OSError):  # the cache only saves time
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        local_files.put(path, content, mode=0o600, durable=False)


def _topics(call: "Call", topic: str | None) -> list[str]:
    return sorted(_all_topics(call))


_MASTERS = 3  # the number of masters asked for groups


def _groups(call: "Call", topic: str | None) -> list[str]:
    """Return groups with a retry topic, which have consumed, and the groups of some masters."""
    from mq.protocol.codes import RequestCode

    found = {name[7:] for name in _all_topics(call) if name.startswith("%RETRY%")}
    table = _cluster_info(call)["brokerAddrTable"]
    masters = [broker["brokerAddrs"].get("0") for broker in table.values()]
    for address in [item for item in masters if item][:_MASTERS]:
        answer = _ask(call, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, address)
        found.update(answer["subscriptionGroupTable"])
    return sorted(found)


def _all_topics(call: "Call") -> list[str]:
    from mq.cli.listing import topic_names
    from mq.client.transport.blocking import run

    async def ask() -> list[str]:
        async with call.session() as session:
            return await topic_names(session)

    return run(ask())


def _clusters(call: "Call", topic: str | None) -> list[str]:
    return sorted(_cluster_info(call)["clusterAddrTable"])


def _brokers(call: "Call", topic: str | None) -> list[str]:
    return sorted(_cluster_info(call)["brokerAddrTable"])


def _addresses(call: "Call", topic: str | None) -> list[str]:
    table = _cluster_info(call)["brokerAddrTable"]
    return sorted(
        address for broker in table.values() for address in broker["brokerAddrs"].values()
    )


def _cluster_info(call: "Call") -> dict[str, Any]:
    from mq.protocol.codes import RequestCode

    return _ask(call, RequestCode.GET_BROKER_CLUSTER_INFO)


def _ask(call: "Call", code: int, address: str | None = None) -> dict[str, Any]:
    """Return the reply of a broker, or of a name server, to a request without fields."""
    from mq.client.transport.blocking import run
    from mq.protocol import fastjson
    from mq.protocol.command import Command

    async def ask() -> bytes:
        async with call.session() as session:
            request = Command(code)
            if address is None:
                return bytes((await session.call_name_server(request)).body)
            return bytes((await session.call(address, request)).body)

    found: dict[str, Any] = fastjson.loads(run(ask()))
    return found


_NEWEST = 16  # messages per queue whose keys are offered
_QUEUES = 8


def _keys(call: "Call", topic: str | None) -> list[str]:
    """Return keys of the newest messages of a topic."""
    from mq.client.pull.pull_consumer import PullConsumer
    from mq.client.transport.blocking import run

    assert topic is not None

    async def ask() -> list[str]:
        found: dict[str, None] = {}
        async with call.session() as session:
            consumer = PullConsumer(session)
            for queue in (await consumer.queues(topic))[:_QUEUES]:
                end = await consumer.max_offset(queue)
                start = max(await consumer.min_offset(queue), end - _NEWEST)
                if start < end:
                    pulled = await consumer.pull(queue, start, max_count=_NEWEST, decompress=False)
                    found.update(
                        dict.fromkeys(key for item in pulled.messages for key in item.keys)
                    )
        return list(found)

    return run(ask())


_FETCHERS: dict[str, Callable[["Call", str | None], list[str]]] = {
    "topics": _topics,
    "groups": _groups,
    "clusters": _clusters,
    "brokers": _brokers,
    "addresses": _addresses,
    "keys": _keys,
}
