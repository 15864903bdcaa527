"""A remoting command: the unit that both sides send, as request or as response."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import orjson

from mq.protocol.codes import LanguageCode
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from mq.protocol.bodies.schema import Body
    from mq.protocol.headers.schema import Header

_H = TypeVar("_H", bound="Header")
_B = TypeVar("_B", bound="Body")

RESPONSE = 1  # flag bit: a response; its opaque identifies the request
ONE_WAY = 2  # flag bit: no response is expected

JSON = 0  # serialization: the header is a JSON object
ROCKETMQ = 1  # serialization: the header is in RocketMQ's own binary form

# Fields that must not appear in logs.
_SECRET_FIELDS = frozenset(("Signature", "SecurityToken", "secretKey"))


class Command:
    """A request or a response.

    ``fields`` are the extFields of the wire: text by text, never None. ``body`` is bytes in
    received commands and any bytes-like object in commands to send. ``opaque`` pairs a response
    with its request and is only unique on one connection.
    """

    __slots__ = (
        "_body_read",
        "_header_read",
        "body",
        "code",
        "fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialization",
        "version",
    )

    _header_read: "Header"  # set by `read_header`
    _body_read: "Body"

    def __init__(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        opaque: int = 0,
        flag: int = 0,
        language: int = LanguageCode.PYTHON,
        version: int = CURRENT_VERSION,
        remark: str | None = None,
        serialization: int = JSON,
    ) -> None:
        self.code = code
        self.fields: Mapping[str, str] = {} if fields is None else fields
        self.body = body
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.remark = remark
        self.serialization = serialization

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    def read_header(self, schema: type[_H]) -> _H:
        """Return the extFields parsed as a header; every call returns the same object.

        So the access check and the handler of a request cannot see different names in it.

        Raises:
            RemoteProtocolError: a required field is missing or a value malformed.
            LocalProtocolError: it was read as another header before.
        """
        try:
            known = self._header_read
        except AttributeError:
            header = self._header_read = schema.decode(self.fields)
            return header
        if type(known) is not schema:
            raise _read_otherwise(self.code, known, schema)
        return known

    def read_body(self, schema: type[_B]) -> _B:
        """Return the body, parsed in the same way. Raises what `read_header` raises."""
        try:
            known = self._body_read
        except AttributeError:
            body = self._body_read = schema.decode(self.body)
            return body
        if type(known) is not schema:
            raise _read_otherwise(self.code, known, schema)
        return known

    def reply(
        self,
        code: int = 0,
        fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        remark: str | None = None,
    ) -> "Command":
        """Return the response to this request, in the serialization of the request."""
        return Command(
            code,
            fields,
            body,
            opaque=self.opaque,
            flag=RESPONSE,
            remark=remark,
            serialization=self.serialization,
        )

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way" if self.is_one_way else "request"
        remark = f" {self.remark!r}" if self.remark else ""
        fields = {k: "***" if k in _SECRET_FIELDS else v for k, v in self.fields.items()}
        return f"<{kind} {self.code} opaque={self.opaque}{remark} {fields} body={len(self.body)}>"


def _read_otherwise(code: int, known: object, wanted: type) -> LocalProtocolError:
    return LocalProtocolError(
        f"request {code} was read as {type(known).__name__}, and now as {wanted.__name__}"
    )


def command_from_header(header: dict[str, object], body: bytes, serialization: int) -> Command:
    """Build a command from a parsed header.

    Values are converted as Java's JSON decoder converts them, because some clients write them in
    other forms: a number may be text, and extFields may have values of any type. Raises
    RemoteProtocolError for a value that cannot be converted.
    """
    return Command(
        _number(header, "code"),
        _text_fields(header.get("extFields")),
        body,
        opaque=_number(header, "opaque"),
        flag=_number(header, "flag"),
        language=_language(header.get("language")),
        version=_number(header, "version"),
        remark=_text(header.get("remark")),
        serialization=serialization,
    )


def is_plain(header: Mapping[str, object]) -> bool:
    """Whether the values of a parsed header that handlers read have the usual types: they need no
    conversion by `command_from_header`.
    """
    fields = header.get("extFields")
    if type(header.get("flag")) is not int or type(header.get("opaque")) is not int:
        return False
    if type(fields) is not dict:
        return False
    try:
        "".join(fields.values())  # the cheapest type check of many values
    except TypeError:
        return False
    return True


def _number(header: Mapping[str, object], name: str) -> int:
    value = header.get(name)
    if type(value) is int:
        return value
    if value is None or value in ("", "null"):
        return 0
    try:
        if isinstance(value, (str, float, bool)):
            number = int(value)
            if -0x8000_0000 <= number <= 0x7FFF_FFFF:
                return number
    except ValueError:
        pass
    raise RemoteProtocolError(f"header: {name} must be an integer of 32 bits")


def _text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # orjson writes fewer levels than it reads
        raise RemoteProtocolError("header: a value is nested too deeply") from None


def _text_fields(fields: object) -> dict[str, str]:
    if fields is None:
        return {}
    if type(fields) is not dict:
        raise RemoteProtocolError("header: extFields must be an object")
    if all(type(value) is str for value in fields.values()):
        return fields
    texts = {name: _text(value) for name, value in fields.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _language(value: object) -> int:
    """Return the code of a language by name (JSON headers) or number (binary ones); else OTHER."""
    if type(value) is str:
        return LanguageCode.__members__.get(value, LanguageCode.OTHER)
    return value if type(value) is int else LanguageCode.OTHER
