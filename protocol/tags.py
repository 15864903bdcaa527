"""Tags in brokers: a hash of 32 bits in the consume queue, and expressions over tags.

Two tags may share a hash, so a broker that filters by code lets a few other messages through, and
the client filters again by text. Sources: java.lang.String.hashCode, common.filter.FilterAPI.
"""

from operator import mul

ALL_TAGS = "*"

_MASK = 0xFFFFFFFF
_CHUNK = 512  # UTF-16 units hashed in one step; longer text is hashed piece by piece
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_CHUNK + 1))
_JAVA_BLANKS = "".join(map(chr, range(0x21)))  # what java.lang.String.trim removes


def java_hash(text: str) -> int:
    """java.lang.String.hashCode: h = 31*h + unit over the UTF-16 units, signed 32 bits."""
    if text.isascii() and len(text) <= _CHUNK:
        # The sum of unit times power, which runs in C code: three times faster than Horner's loop.
        value: int = sum(map(mul, text.encode()[::-1], _POWERS)) & _MASK
    else:
        value = 0
        encoded = text.encode("utf-16-be", "surrogatepass")
        for start in range(0, len(encoded), 2 * _CHUNK):
            piece = encoded[start : start + 2 * _CHUNK]
            low, high = piece[::-1][::2], piece[::-1][1::2]
            total = sum(map(mul, low, _POWERS)) + 256 * sum(map(mul, high, _POWERS))
            value = (value * _POWERS[len(low)] + total) & _MASK
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def tags_code(tag: str | None) -> int:
    """Return the tags code of a message in the consume queue: the hash of its tag, 0 without
    one.
    """
    return java_hash(tag) if tag else 0


class TagExpression:
    """The tags that a consumer subscribes to: all, or those of a list such as "TagA || TagB".

    Attributes:
        text: the expression on the wire; "*" for all.
        tags: the tags that it names, in order; empty for all.
        codes: their hashes; empty for all.
    """

    __slots__ = ("codes", "tags", "text")

    def __init__(self, text: str, tags: tuple[str, ...]) -> None:
        self.text = text
        self.tags = tags
        self.codes = frozenset(map(java_hash, tags))

    @classmethod
    def parse(cls, text: str | None) -> "TagExpression":
        """Parse an expression; None, "" and "*" mean all tags (FilterAPI.buildSubscriptionData).

        An expression of blanks names no tag and so matches all messages received, as with Java's
        clients; a broker sends nothing for it.

        Raises:
            ValueError: only separators.
        """
        if text is None or text == "" or text == ALL_TAGS:
            return cls(ALL_TAGS, ())
        parts = text.split("||")
        if not any(parts):
            raise ValueError(f"the tag expression {text!r} names no tag: write tags between '||'")
        tags = (part.strip(_JAVA_BLANKS) for part in parts)
        return cls(text, tuple(dict.fromkeys(tag for tag in tags if tag)))

    def matches_code(self, code: int) -> bool:
        """Whether a message with this tags code may match (ConsumeQueue filtering)."""
        return not self.codes or code in self.codes

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag matches; one without a tag only if all match."""
        return not self.tags or tag in self.tags

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagExpression) and self.tags == other.tags

    def __hash__(self) -> int:
        return hash(self.tags)

    def __repr__(self) -> str:
        return f"TagExpression.parse({self.text!r})"
