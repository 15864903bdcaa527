"""Frames on a connection, some of whose bytes have been changed."""

from collections.abc import Sequence

from hypothesis import strategies as st


@st.composite
def damaged(draw: st.DrawFn, frames: st.SearchStrategy[bytes], changes: Sequence[int]) -> bytes:
    """Up to six frames in one buffer, of which up to `changes` bytes are changed."""
    data = bytearray(b"".join(draw(st.lists(frames, min_size=1, max_size=6))))
    for _ in range(draw(st.sampled_from(changes))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)
