"""Declaration of JSON bodies: one class, one line per field.

    class TopicList(Body):
        topic_list: set[str] = field(factory=set)
        broker_addr: str | None = None

The keyword-only constructor, `decode`, `encode`, repr, equality and the table in docs/protocol.md
are derived from the declaration. The name in JSON is the attribute in camelCase unless
`field(wire=…)` names another. A field may be text, an integer, a float, a bool, an enum (written by
name), a Body, a MessageQueue, a list or set of these, or a dict by text, integer or MessageQueue;
or any of these or None. Every field has a default, because Java leaves out null values.

Codecs are built when a class is first used, so that a declaration costs almost nothing.
"""

import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import GenericAlias, NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

import orjson

from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.fastjson import MalformedJson, ObjectKey, dumps, loads
from mq.protocol.headers.schema import camel_case

_MISSING: Any = object()


class BodyField(NamedTuple):
    """One field of a body: `name` is the attribute, `wire` its name in JSON."""

    name: str
    wire: str
    annotation: Any
    default: Any
    factory: Callable[[], Any] | None
    release: str  # "" if every release has it, else codes.ONLY_4 or codes.SINCE_5


class _Declared(NamedTuple):
    default: Any
    factory: Callable[[], Any] | None
    wire: str
    release: str


def field(
    *,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
    wire: str = "",
    release: str = "",
) -> Any:
    """Declare more than the type of a field: a factory of its default, its name in JSON, the
    releases that know it.
    """
    return _Declared(default, factory, wire, release)


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Sorts as in Java: topic, broker, id."""

    topic: str
    broker_name: str
    queue_id: int


_Read = Callable[[Any], Any]
_Write = Callable[[Any], Any]


class _Codec(NamedTuple):
    """The codec of a class: (wire, name, codec of the value), in the order of `wire`."""

    readers: dict[str, tuple[str, _Read]]
    writers: tuple[tuple[str, str, _Write], ...]
    plain: bool  # only text keys, so that orjson can write it


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Body:
    """Base class of bodies. The class keyword `release` marks a body that only some releases
    have.
    """

    FIELDS: ClassVar[tuple[BodyField, ...]] = ()
    RELEASE: ClassVar[str] = ""
    _codec: ClassVar[_Codec | None] = None
    _factories: ClassVar[tuple[tuple[str, Callable[[], Any]], ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, *, release: str = "") -> None:
        own = tuple(_read_declaration(cls, *item) for item in cls.__annotations__.items())
        cls.FIELDS = cls.FIELDS + own
        cls.RELEASE = release
        cls._codec = None
        cls._factories = tuple((f.name, f.factory) for f in cls.FIELDS if f.factory is not None)
        cls._names = frozenset(f.name for f in cls.FIELDS)

    def __init__(self, **values: Any) -> None:
        if not values.keys() <= self._names:
            unknown = ", ".join(sorted(values.keys() - self._names))
            raise TypeError(f"{type(self).__name__} has no field {unknown}")
        self.__dict__.update(values)
        for name, factory in self._factories:
            if name not in values:
                self.__dict__[name] = factory()

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Read a body. Unknown fields are ignored; missing and null ones take their default.

        Raises:
            RemoteProtocolError: not JSON by fastjson's rules, or a value has the wrong type.
        """
        try:
            return cls.from_plain(loads(data))
        except MalformedJson as error:
            raise RemoteProtocolError(f"{cls.__name__}: {error}") from None

    def encode(self, *, standard: bool = False) -> bytes:
        """Write the body as fastjson does: names in alphabetical order, without None, and integer
        keys without quotes unless `standard` (then the result is standard JSON).

        Raises:
            LocalProtocolError: a value cannot be represented in JSON.
        """
        try:
            plain = self.to_plain()
            if _codec_of(type(self)).plain:
                return orjson.dumps(plain)
            return dumps(plain, standard=standard)
        except (TypeError, ValueError, AttributeError) as error:
            raise LocalProtocolError(f"{type(self).__name__}: {error}") from None

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Read a body that `fastjson.loads` has parsed.

        Raises:
            RemoteProtocolError: a value has the wrong type.
        """
        try:
            return _read_body(cls, plain)
        except _Mismatch as error:
            raise RemoteProtocolError(f"{cls.__name__}{error}") from None

    def to_plain(self) -> dict[str, Any]:
        """Return the body as dicts, lists and plain values, for `fastjson.dumps` and
        `dumps_pretty`: a set becomes a sorted tuple, and a MessageQueue that is a key an
        ObjectKey.
        """
        plain = {}
        for wire, name, write in _codec_of(type(self)).writers:
            value = getattr(self, name)
            if value is not None:
                plain[wire] = write(value)
        return plain

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self._names
        )

    __hash__ = None  # type: ignore[assignment]  # bodies are mutable

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.FIELDS)
        return f"{type(self).__name__}({shown})"


_B = TypeVar("_B", bound=Body)


class _Mismatch(ValueError):
    """A value has the wrong type; the text is its path and the expected type."""


def _read_declaration(cls: type[Body], name: str, annotation: Any) -> BodyField:
    """Check one line of a body and store its plain default in the class."""
    declared = vars(cls).get(name, _MISSING)
    if declared is _MISSING or isinstance(declared, (list, dict, set)):
        raise TypeError(f"{cls.__name__}.{name} needs a default, field(factory=…) if it can change")
    if not isinstance(declared, _Declared):
        declared = _Declared(declared, None, "", "")
    setattr(cls, name, declared.default)
    wire = declared.wire or camel_case(name)
    return BodyField(name, wire, annotation, declared.default, declared.factory, declared.release)


def _codec_of(cls: type[Body]) -> _Codec:
    codec = cls._codec
    if codec is None:
        fields = sorted(cls.FIELDS, key=lambda f: f.wire)
        codecs = [_value_codec(f.annotation) for f in fields]
        codec = cls._codec = _Codec(
            {f.wire: (f.name, read) for f, (read, _, _) in zip(fields, codecs, strict=True)},
            tuple((f.wire, f.name, write) for f, (_, write, _) in zip(fields, codecs, strict=True)),
            all(plain for _, _, plain in codecs),
        )
    return codec


def _read_body(cls: type[_B], plain: Any) -> _B:
    if type(plain) is not dict:
        raise _expected("an object", plain)
    values = {}
    readers = _codec_of(cls).readers
    for wire, value in plain.items():
        if value is not None and wire in readers:
            name, read = readers[wire]
            try:
                values[name] = read(value)
            except _Mismatch as mismatch:
                raise _Mismatch(f".{wire}{mismatch}") from None
    for name, factory in cls._factories:
        if name not in values:
            values[name] = factory()
    body = cls.__new__(cls)
    body.__dict__ = values
    return body


# --- codecs of values: reader, writer, whether orjson can serialize the writer's result ---

_ValueCodec = tuple[_Read, _Write, bool]


def _value_codec(annotation: Any) -> _ValueCodec:
    if isinstance(annotation, UnionType):  # X | None; None itself is handled elsewhere
        (annotation,) = [part for part in annotation.__args__ if part is not NoneType]
    if isinstance(annotation, GenericAlias):
        return _container_codec(annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation], _same, True
    if annotation is MessageQueue:
        return _read_queue, _write_queue, True
    if issubclass(annotation, Enum):
        return _enum_reader(annotation), _enum_name, True
    return (
        lambda plain: _read_body(annotation, plain),
        lambda body: body.to_plain(),
        _codec_of(annotation).plain,
    )


def _container_codec(annotation: GenericAlias) -> _ValueCodec:
    origin, arguments = annotation.__origin__, annotation.__args__
    read, write, plain = _value_codec(arguments[-1])
    if origin is list:
        return (
            lambda items: [read(item) for item in _items(items)],
            list if write is _same else lambda items: [write(item) for item in items],
            plain,
        )
    if origin is set:
        return (
            lambda items: {read(item) for item in _items(items)},
            lambda items: tuple(write(item) for item in sorted(items)),
            plain,
        )
    read_key, write_key = _KEYS[arguments[0]]

    def read_dict(members: Any) -> dict[Any, Any]:
        if type(members) is not dict:
            raise _expected("an object", members)
        values = {}
        for key, value in members.items():
            try:
                values[read_key(key)] = read(value)
            except _Mismatch as mismatch:
                raise _Mismatch(f"[{key!r}]{mismatch}") from None
        return values

    def write_dict(members: dict[Any, Any]) -> dict[Any, Any]:
        return {write_key(key): write(value) for key, value in members.items()}

    return read_dict, write_dict, plain and arguments[0] is str


def _items(value: Any) -> Iterator[Any]:
    if type(value) is not list:
        raise _expected("a list", value)
    return iter(value)


def _same(value: Any) -> Any:
    return value


def _read_text(value: Any) -> str:
    if type(value) is str:
        return sys.intern(value) if len(value) < 20 else value
    if type(value) is int or type(value) is float:
        return str(value)  # as fastjson does
    raise _expected("text", value)


def _read_int(value: Any) -> int:
    if type(value) is int:
        return value
    try:
        if type(value) is str or (type(value) is float and value.is_integer()):
            return int(value)
    except ValueError:
        pass
    raise _expected("a whole number", value)


def _read_float(value: Any) -> float:
    if type(value) is float or type(value) is int:
        return float(value)
    raise _expected("a number", value)


def _read_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    if value in ("true", "false", 0, 1):
        return value in ("true", 1)
    raise _expected("true or false", value)


def _enum_reader(enum: type[Enum]) -> _Read:
    members = enum.__members__

    def read(value: Any) -> Any:
        # A name of a later release is read as None, as in fastjson.
        return members.get(value) if type(value) is str else None

    return read


def _enum_name(value: Enum) -> str:
    return value.name


def _read_queue(value: Any) -> MessageQueue:
    if type(value) is not dict:
        raise _expected("a message queue", value)
    topic, broker = value.get("topic"), value.get("brokerName")
    return MessageQueue(
        "" if topic is None else _read_text(topic),
        "" if broker is None else _read_text(broker),
        _read_int(value.get("queueId", 0)),
    )


def _write_queue(queue: MessageQueue) -> dict[str, Any]:
    plain = {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}
    if queue.broker_name and queue.topic:
        return plain
    # An empty value was null in Java, which leaves it out.
    return {name: value for name, value in plain.items() if value != ""}


def _read_queue_key(key: Any) -> MessageQueue:
    if isinstance(key, ObjectKey):
        return _read_queue(dict(key))
    try:  # standard JSON has the object as text
        return _read_queue(loads(key.encode()))
    except MalformedJson:
        raise _expected("a message queue", key) from None


def _write_queue_key(queue: MessageQueue) -> ObjectKey:
    return ObjectKey(_write_queue(queue).items())


def _read_text_key(key: Any) -> str:
    if type(key) is str:
        return key
    raise _expected("text as key", key)


_SCALARS: dict[Any, _Read] = {
    str: _read_text,
    int: _read_int,
    float: _read_float,
    bool: _read_bool,
}
_KEYS: dict[Any, tuple[_Read, Callable[[Any], Any]]] = {
    str: (_read_text_key, _same),
    int: (_read_int, int),
    MessageQueue: (_read_queue_key, _write_queue_key),
}


def _expected(wanted: str, value: Any) -> _Mismatch:
    shown = repr(value)
    return _Mismatch(f": {wanted} expected, not {shown if len(shown) < 60 else shown[:60] + '…'}")
