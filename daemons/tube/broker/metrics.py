"""Metrics of a TubeMQ broker."""

from collections.abc import Iterator, Mapping

from mq.daemons.metrics import Kind, Metric, counter, gauge, of_tasks
from mq.daemons.supervision import Tasks
from mq.daemons.tube.broker.gets import Gets
from mq.daemons.tube.broker.master_link import MasterLink
from mq.daemons.tube.broker.sends import Sends
from mq.daemons.tube.broker.serving import Serving
from mq.daemons.tube.rpc import RpcListener


def metrics_of(
    serving: Serving,
    listeners: Mapping[str, RpcListener],
    sends: Sends,
    gets: Gets,
    link: MasterLink | None,
    tasks: Tasks,
) -> Iterator[Metric | None]:
    """Yield all of them; at each None other tasks may run."""
    yield from _of_listeners(listeners)
    yield None
    yield counter("mq_tube_messages_in_total", "Messages received.", sends.taken)
    yield counter("mq_tube_messages_out_total", "Messages delivered.", gets.messages)
    yield counter("mq_tube_bytes_out_total", "Bytes of records delivered.", gets.bytes)
    yield counter("mq_tube_disk_reads_total", "Gets that had to wait for the disk.", gets.from_disk)
    yield counter(
        "mq_tube_bad_records_total", "Damaged records that were skipped.", gets.bad_records
    )
    for name, doc, refused in (
        ("mq_tube_refused_sends_total", "Sends refused, by code.", sends.refused),
        ("mq_tube_refused_gets_total", "Gets refused, by code.", gets.refused),
    ):
        values = [((str(int(code)),), float(count)) for code, count in sorted(refused.items())]
        yield Metric(name, Kind.counter, doc, ("code",), values)
    yield from _of_stores(serving)
    yield gauge("mq_tube_consumers", "Partitions that have a consumer.", len(serving.consumers))
    yield counter(
        "mq_tube_consumers_expired_total", "Consumers that timed out.", serving.consumers.expired
    )
    yield gauge("mq_tube_offsets", "Offsets kept for consumer groups.", len(serving.offsets))
    yield counter(
        "mq_tube_denied_total", "Requests denied for lack of a valid token.", serving.access.refused
    )
    for direction, status in (("read", serving.reads), ("write", serving.writes)):
        yield gauge(
            f"mq_tube_{direction}_stopped",
            f"1 while {direction}s are refused.",
            float(status.is_stopped),
        )
    if link is not None:
        yield gauge("mq_tube_registered", "1 while registered with a master.", link.is_registered)
        yield counter("mq_tube_heartbeat_failures_total", "Unanswered heartbeats.", link.failures)
    yield of_tasks(tasks)


def _of_listeners(listeners: Mapping[str, RpcListener]) -> Iterator[Metric]:
    names = ("listener",)
    connections = [((n,), float(len(one.channels))) for n, one in listeners.items()]
    yield Metric("mq_tube_connections", Kind.gauge, "Open connections.", names, connections)
    for what, doc in (
        ("broken_frames", "Connections closed because of malformed frames."),
        ("malformed_requests", "Malformed requests."),
        ("unknown_methods", "Requests for unknown methods."),
        ("expired_requests", "Requests dropped because their clients had timed out."),
        ("handler_failures", "Requests that failed in the broker."),
        ("refused_connections", "Connections refused because too many were open."),
    ):
        counts = [((n,), float(one.counters[what])) for n, one in listeners.items()]
        yield Metric(f"mq_tube_{what}_total", Kind.counter, doc, names, counts)
    requests: dict[str, float] = {}
    for one in listeners.values():
        for method, count in one.requests.items():
            requests[str(method)] = requests.get(str(method), 0.0) + count
    by_method = [((method,), count) for method, count in sorted(requests.items())]
    yield Metric(
        "mq_tube_requests_total", Kind.counter, "Requests, by method.", ("method",), by_method
    )
    memory = next(iter(listeners.values())).memory
    yield gauge(
        "mq_tube_client_memory_bytes", "Bytes of memory held on behalf of clients.", memory.size()
    )


def _of_stores(serving: Serving) -> Iterator[Metric | None]:
    stores = list(serving.stores)
    yield gauge("mq_tube_stores", "Open stores.", len(stores))
    yield gauge("mq_tube_stores_broken", "Stores that accept no writes until a restart.",
                sum(one.is_broken for one in stores))  # fmt: skip
    yield gauge(
        "mq_tube_data_bytes", "Size of the data files.", sum(s.data.bytes() for s in stores)
    )
    yield None
    waiting = sum(one.waiting for one in stores)
    yield gauge("mq_tube_waiting_bytes", "Bytes received and not acknowledged yet.", waiting)
    failures = sum(one.failures for one in stores)
    yield counter("mq_tube_store_failures_total", "Failed writes and fsyncs.", failures)
    flusher = serving.stores.flusher
    yield counter("mq_tube_flushes_total", "Rounds of fsyncs.", flusher.flushes)
    yield counter("mq_tube_flush_seconds_total", "Time spent in fsync.", flusher.total_seconds)
    deleted = serving.stores.deleted
    yield counter("mq_tube_deleted_files_total", "Expired files that were deleted.", deleted)
    damages = len(serving.stores.damages)
    yield counter(
        "mq_tube_damages_total", "Damaged parts of stores that recovery set aside.", damages
    )
