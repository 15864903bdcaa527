"""A remoting command: the one thing that both sides send, as request or as response."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from mq.protocol.codes import LanguageCode
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from mq.protocol.bodies.schema import Body
    from mq.protocol.headers.schema import Header

_H = TypeVar("_H", bound="Header")
_B = TypeVar("_B", bound="Body")

RESPONSE = 1  # flag bit: an answer; its opaque names the request
ONE_WAY = 2  # flag bit: nobody waits for an answer

JSON = 0  # serialization: the header is a JSON object
ROCKETMQ = 1  # serialization: the header is RocketMQ's own binary form

# Fields that a log must not show.
_SECRET_FIELDS = frozenset(("Signature", "SecurityToken", "secretKey"))


class Command:
    """A request or a response.

    ``fields`` are the extFields of the wire: text by text, never None. ``body`` is bytes on the way
    in and any bytes-like on the way out. ``opaque`` pairs a response with its request and is only
    unique on one connection.
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
        """The extFields, read as a header; whoever asks again gets the same object.

        So who checks a request and who serves it cannot see different names in it.

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
        """The body, read likewise. Raises what `read_header` does."""
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
        """The response to this request, in the serialization the request came in."""
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

    Raises RemoteProtocolError where a field has the wrong type. Numbers and booleans among the
    extFields become text, because some clients write them bare; anything nested is refused.
    """
    code = header.get("code")
    opaque = header.get("opaque", 0)
    flag = header.get("flag", 0)
    version = header.get("version", 0)
    remark = header.get("remark")
    if not (
        type(code) is int and type(opaque) is int and type(flag) is int and type(version) is int
    ):
        raise RemoteProtocolError("header: code, opaque, flag and version must be integers")
    if remark is not None and type(remark) is not str:
        raise RemoteProtocolError("header: remark must be text")
    return Command(
        code,
        _text_fields(header.get("extFields")),
        body,
        opaque=opaque,
        flag=flag,
        language=_language(header.get("language")),
        version=version,
        remark=remark,
        serialization=serialization,
    )


def _text_fields(fields: object) -> dict[str, str]:
    if fields is None:
        return {}
    if type(fields) is not dict:
        raise RemoteProtocolError("header: extFields must be an object")
    if all(type(value) is str for value in fields.values()):
        return fields
    texts = {}
    for name, value in fields.items():
        if type(value) is bool:
            texts[name] = "true" if value else "false"
        elif type(value) is str or type(value) is int or type(value) is float:
            texts[name] = str(value)
        elif value is not None:
            raise RemoteProtocolError(f"header: extFields.{name} must be text")
    return texts


def _language(value: object) -> int:
    """The code of a language by name (JSON headers) or number (binary ones); else OTHER."""
    if type(value) is str:
        return LanguageCode.__members__.get(value, LanguageCode.OTHER)
    return value if type(value) is int else LanguageCode.OTHER
