"""Declaration of headers: one class, one line per field.

    class GetMaxOffsetRequestHeader(Header, request=RequestCode.GET_MAX_OFFSET):
        topic: str
        queue_id: Int
        committed: bool | None = field(default=None, release=SINCE_5)

The keyword-only constructor, `decode`, `encode`, repr, equality and the table in docs/protocol.md
are derived from the declaration, which is checked when the class is created. On the wire a header
is a map of text by text, the extFields of a command; the name there is the attribute in camelCase
unless `field(wire=…)` names another.

A field without a default is required. If Java initializes a field, it may be missing there, and so
it has that default here, even if Java marks it as CFNotNull.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self, dataclass_transform

from mq.protocol.codes import AnyCode
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError

Int = Annotated[int, 32]  # java.lang.Integer
Long = Annotated[int, 64]  # java.lang.Long


_MISSING: Any = object()


class Field(NamedTuple):
    """One field of a header: `name` is the attribute, `wire` its name among the extFields."""

    name: str
    wire: str
    kind: str  # "text", "i32", "i64", "bool" or "float"
    required: bool
    default: Any
    release: str  # "" if every release has it, else ONLY_4, SINCE_5 or ONLY_SNODE of codes


class _Declared(NamedTuple):
    default: Any
    wire: str
    release: str


def field(*, default: Any = _MISSING, wire: str = "", release: str = "") -> Any:
    """Declare more than the type of a field: its name on the wire, the releases that know it."""
    return _Declared(default, wire, release)


def _parse_bool(text: str) -> bool:
    return text.lower() == "true"  # java.lang.Boolean.parseBoolean


def _parse_i32(text: str) -> int:
    number = int(text)
    if -0x8000_0000 <= number <= 0x7FFF_FFFF and (text.isalnum() or _is_plain(text)):
        return number
    raise ValueError


def _parse_i64(text: str) -> int:
    number = int(text)
    if -(1 << 63) <= number < 1 << 63 and (text.isalnum() or _is_plain(text)):
        return number
    raise ValueError


def _is_plain(text: str) -> bool:
    """Whether a number has only a sign and digits: int() accepts "1_0" and " 1", Java does not."""
    return text[0] in "+-" and text[1:].isalnum()


def _text_of_i32(value: int) -> str:
    if -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return str(int(value))
    raise ValueError


def _text_of_i64(value: int) -> str:
    if -(1 << 63) <= value < 1 << 63:
        return str(int(value))
    raise ValueError


def _text_of_bool(value: bool) -> str:
    return "true" if value else "false"


def _text_of_text(value: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError


# kind: (its name in messages, parser, writer); text needs no parser.
_Parse = Callable[[str], object] | None
_KINDS: dict[str, tuple[str, _Parse, Callable[[Any], str]]] = {
    "text": ("text", None, _text_of_text),
    "i32": ("a whole number of 32 bits", _parse_i32, _text_of_i32),
    "i64": ("a whole number of 64 bits", _parse_i64, _text_of_i64),
    "bool": ("true or false", _parse_bool, _text_of_bool),
    "float": ("a number", float, str),
}
_ANNOTATIONS: dict[object, str] = {
    str: "text",
    Int: "i32",
    Long: "i64",
    bool: "bool",
    float: "float",
    str | None: "text",
    Int | None: "i32",
    Long | None: "i64",
    bool | None: "bool",
    float | None: "float",
}


def camel_case(name: str) -> str:
    """Convert `queue_id` to Java's `queueId`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Header:
    """Base class of headers.

    Class keywords: `request` is the code, or codes, whose extFields these are; `answers` the code
    whose response they belong to; `release` marks a header that only some releases have.
    """

    FIELDS: ClassVar[tuple[Field, ...]] = ()
    REQUESTS: ClassVar[tuple[AnyCode, ...]] = ()
    ANSWERS: ClassVar[tuple[AnyCode, ...]] = ()
    RELEASE: ClassVar[str] = ""

    _readers: ClassVar[dict[str, tuple[str, _Parse]]] = {}
    _writers: ClassVar[tuple[tuple[str, str, Callable[[Any], str]], ...]] = ()
    _required: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(
        cls,
        *,
        request: AnyCode | tuple[AnyCode, ...] = (),
        answers: AnyCode | tuple[AnyCode, ...] = (),
        release: str = "",
    ) -> None:
        own = tuple(_read_declaration(cls, *item) for item in cls.__annotations__.items())
        cls.FIELDS = own + tuple(f for f in cls.FIELDS if f.name not in cls.__annotations__)
        cls.REQUESTS = (request,) if isinstance(request, AnyCode) else request
        cls.ANSWERS = (answers,) if isinstance(answers, AnyCode) else answers
        cls.RELEASE = release
        cls._readers = {f.wire: (f.name, _KINDS[f.kind][1]) for f in cls.FIELDS}
        cls._writers = tuple((f.name, f.wire, _KINDS[f.kind][2]) for f in cls.FIELDS)
        cls._required = frozenset(f.name for f in cls.FIELDS if f.required)
        if len(cls._readers) != len(cls.FIELDS):
            raise TypeError(f"{cls.__name__}: two fields have the same name on the wire")

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - {f.name for f in self.FIELDS}
        missing = self._required - values.keys()
        if unknown or missing:
            raise TypeError(
                f"{type(self).__name__}: "
                + ", ".join(
                    [f"{name} is missing" for name in sorted(missing)]
                    + [f"{name} is not one of its fields" for name in sorted(unknown)]
                )
            )
        self.__dict__.update(values)  # missing values are found as attributes of the class

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self:
        """Read a header from the extFields of a command. Unknown fields are ignored.

        Raises:
            RemoteProtocolError: a required field is missing or a value malformed; it names the
                field.
        """
        values: dict[str, object] = {}
        readers = cls._readers
        for wire, text in fields.items():
            reader = readers.get(wire)
            if reader is not None:
                name, parse = reader
                if parse is None:
                    values[name] = text
                else:
                    try:
                        values[name] = parse(text)
                    except ValueError:
                        raise cls._malformed(name, text) from None
        if not cls._required <= values.keys():
            raise cls._incomplete(values)
        header = cls.__new__(cls)
        header.__dict__ = values
        return header

    def encode(self) -> dict[str, str]:
        """Return the extFields: None is left out, a bool is "true" or "false".

        Raises:
            LocalProtocolError: a value does not fit its field; it names the field.
        """
        fields = {}
        for name, wire, write in self._writers:
            value = getattr(self, name)
            if value is not None:
                try:
                    fields[wire] = write(value)
                except (TypeError, ValueError):
                    raise LocalProtocolError(
                        f"{type(self).__name__}: {name} must be {_describe(self, name)}, "
                        f"not {value!r}"
                    ) from None
        return fields

    @classmethod
    def _malformed(cls, name: str, text: str) -> RemoteProtocolError:
        wire = next(f.wire for f in cls.FIELDS if f.name == name)
        shown = text if len(text) <= 40 else text[:40] + "…"
        return RemoteProtocolError(
            f"{cls.__name__}: {wire} must be {_describe(cls, name)}, not {shown!r}"
        )

    @classmethod
    def _incomplete(cls, values: Mapping[str, object]) -> RemoteProtocolError:
        missing = [f.wire for f in cls.FIELDS if f.required and f.name not in values]
        verb = "is" if len(missing) == 1 else "are"
        return RemoteProtocolError(f"{cls.__name__}: {', '.join(missing)} {verb} missing")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, f.name) == getattr(other, f.name) for f in self.FIELDS
        )

    __hash__ = None  # type: ignore[assignment]  # headers are mutable

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name), f.default) for f in self.FIELDS]
        shown = ", ".join(f"{name}={value!r}" for name, value, default in given if value != default)
        return f"{type(self).__name__}({shown})"


def _describe(header: Header | type[Header], name: str) -> str:
    return _KINDS[next(f.kind for f in header.FIELDS if f.name == name)][0]


def _read_declaration(cls: type[Header], name: str, annotation: object) -> Field:
    """Check one line of a header and store its plain default in the class."""
    kind = _ANNOTATIONS.get(annotation)
    if kind is None:
        raise TypeError(f"{cls.__name__}.{name}: a header has no fields of type {annotation!r}")
    declared = vars(cls).get(name, _MISSING)
    if not isinstance(declared, _Declared):
        declared = _Declared(declared, "", "")
    required = declared.default is _MISSING
    if not required:
        setattr(cls, name, declared.default)
    elif name in vars(cls):
        delattr(cls, name)
    return Field(
        name,
        declared.wire or camel_case(name),
        kind,
        required,
        None if required else declared.default,
        declared.release,
    )
