"""The properties of many records at once, without a Python object for each.

The texts (name 0x01 value 0x02 name 0x01 …) of all records are joined, and numpy finds their
separators. Cases that need more care, such as invalid UTF-8, two properties of one name and
characters that JSON escapes, are left to the caller: the result is then None, and the records have
to be read one by one (mq.protocol.properties).
"""

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mq.pipeline.records import Integers, Records
from mq.protocol import properties as property_text

_NAME_END = ord(property_text.NAME_VALUE_SEPARATOR)
_PROPERTY_END = ord(property_text.PROPERTY_SEPARATOR)
_SPACE, _QUOTE, _BACKSLASH = 0x20, 0x22, 0x5C

Bytes = npt.NDArray[np.uint8]

# A name's hash is the sum of these. Names of the same letters have the same one, which is rare, and
# only costs time. (The mixing of SplitMix64; to import numpy.random would take longer than to plan
# a query.)
_ROW_WEIGHT = np.uint64(0x9E3779B97F4A7C15)
_WEIGHTS = np.arange(1, 257, dtype=np.uint64) * _ROW_WEIGHT
_WEIGHTS = (_WEIGHTS ^ (_WEIGHTS >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
_WEIGHTS = (_WEIGHTS ^ (_WEIGHTS >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)


def parts(
    buffer: bytearray | pa.Buffer,
    kind: pa.DataType,
    start: Integers,
    length: Integers,
    present: npt.NDArray[np.bool_] | None = None,
) -> pa.Array:
    """Return an array of the bytes that begin at each `start`, as binary or string.

    Starts ascend and parts do not overlap; the array is a copy of them. Parts that are not
    `present` are null, and must have no length.
    """
    count = len(start)
    if count == 0:
        return pa.array([], kind)
    edges: npt.NDArray[np.int32] = np.empty(2 * count, np.int32)
    edges[0::2] = start
    edges[1::2] = start + length
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(buffer)]
    everything = pa.Array.from_buffers(kind, 2 * count - 1, buffers)
    taken = everything.take(pa.array(np.arange(0, 2 * count - 1, 2)))
    if present is None or present.all():
        return taken
    valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [valid, *taken.buffers()[1:]])


class PropertyTable:
    """The begin and end of each property's name, and the end of its value.

    It has only valid properties: with a separator, and with a non-empty name and value.
    """

    def __init__(self, records: Records) -> None:
        self._texts = parts(
            records.buffer, pa.binary(), records.properties_at, records.properties_length
        )
        count = len(records)
        _, offsets, data = self._texts.buffers()
        self._offsets = np.frombuffer(offsets, np.int32, count + 1).astype(np.int64)
        self._data: Bytes = np.frombuffer(b"" if data is None else data, np.uint8)
        self._data = self._data[: self._offsets[-1]]
        self._ends = np.flatnonzero(self._data == _PROPERTY_END)
        self._name_ends = np.flatnonzero(self._data == _NAME_END)
        begin = np.sort(np.concatenate((self._offsets[:-1], self._ends + 1)), kind="stable")
        end = np.sort(np.concatenate((self._ends, self._offsets[1:])), kind="stable")
        # The last one has no end: use the end of all texts.
        places = np.append(self._name_ends, len(self._data))
        name_end = places[np.searchsorted(self._name_ends, begin)]
        kept = (name_end > begin) & (name_end + 1 < end)
        self.begin, self.name_end, self.end = begin[kept], name_end[kept], end[kept]
        self.row = np.searchsorted(self._offsets, self.begin, "right") - 1

    @cached_property
    def is_text(self) -> bool:
        """Whether every text is UTF-8."""
        if not (self._data & 0x80).any():
            return True
        try:
            self._texts.cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    def find(self, name: str) -> pa.Array | None:
        """Return a property of each record, null if it has none.

        Of equal names the last one counts. None if this method cannot find it.
        """
        if not self.is_text:
            return None
        wanted = name.encode()
        found = np.flatnonzero(self.name_end - self.begin == len(wanted))
        for index, byte in enumerate(wanted):
            found = found[self._data[self.begin[found] + index] == byte]
        start = self._offsets[:-1].copy()
        length = np.zeros(len(start), np.int64)
        present = np.zeros(len(start), np.bool_)
        row = self.row[found]  # of equal ones numpy keeps the last
        start[row] = self.name_end[found] + 1
        length[row] = self.end[found] - self.name_end[found] - 1
        present[row] = True
        return parts(self._buffer, pa.string(), start, length, present)

    def as_map(self) -> pa.Array | None:
        """Return all properties, as a map from name to value."""
        if not self.is_text or not self._are_names_unique:
            return None
        counts = np.bincount(self.row, minlength=len(self._offsets) - 1)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        names = parts(self._buffer, pa.string(), self.begin, self.name_end - self.begin)
        values_at = self.name_end + 1
        values = parts(self._buffer, pa.string(), values_at, self.end - values_at)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    def as_json(self) -> pa.Array | None:
        """Return all properties, as the text of a JSON object."""
        data, count = self._data, len(self._offsets) - 1
        length = np.diff(self._offsets)
        # 5.x ends a text with a separator.
        ended = length > 0
        ended[ended] = data[self._offsets[1:][ended] - 1] == _PROPERTY_END
        length -= ended
        separators = len(self._ends) - int(ended.sum())
        controls = int((data < _SPACE).sum())
        if (
            not self.is_text
            or len(self.begin) != separators + int((length > 0).sum())  # some are invalid
            or len(self._name_ends) != len(self.begin)
            or controls != len(self._ends) + len(self._name_ends)
            or ((data == _QUOTE) | (data == _BACKSLASH)).any()
            or not self._are_names_unique
        ):
            return None
        texts = parts(self._buffer, pa.string(), self._offsets[:-1], length)
        texts = pc.replace_substring(texts, property_text.NAME_VALUE_SEPARATOR, '":"')
        texts = pc.replace_substring(texts, property_text.PROPERTY_SEPARATOR, '","')
        joined = pc.binary_join_element_wise('{"', texts, '"}', "")
        if int((length > 0).sum()) == count:
            return joined
        return pc.if_else(pa.array(length > 0), joined, "{}")

    @property
    def _buffer(self) -> pa.Buffer:
        return self._texts.buffers()[2] or pa.py_buffer(b"")

    @cached_property
    def _are_names_unique(self) -> bool:
        """Whether certainly no record has two properties of one name."""
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(_WEIGHTS[self._data])))
        names = sums[self.name_end] - sums[self.begin]
        keys = np.sort(names + self.row.astype(np.uint64) * _ROW_WEIGHT)
        return not (keys[1:] == keys[:-1]).any()
