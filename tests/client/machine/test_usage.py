"""The resources that a process has used."""

from mq.client.machine.usage import usage


def test_time_and_memory_grow_with_what_is_done() -> None:
    before = usage()
    kept = bytearray(64 << 20)
    kept[:: 1 << 12] = b"x" * (len(kept) >> 12)  # each page
    while (after := usage()).cpu_seconds <= before.cpu_seconds:
        pass
    assert after.private_bytes - before.private_bytes > 32 << 20
