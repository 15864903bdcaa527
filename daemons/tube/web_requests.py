"""The parsing of HTTP requests from a connection, with limits."""

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from mq.daemons.tube.web_methods import WebRequest

MAX_HEAD = 64 * 1024  # bytes of a request line and headers: GETs contain whole lists of offsets
MAX_BODY = 1024 * 1024  # of a form
MAX_FIELDS = 1000  # of a query or a form


class BadRequest(Exception):
    """A request that is not served; the text is sent to the client, with the status."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def take_request(buffer: bytearray, peer: str) -> tuple[WebRequest, bool] | int:
    """Take a request from the start of the buffer, and return it with whether the connection stays.

    Return the needed number of bytes if it is incomplete. Raises BadRequest.
    """
    end = buffer.find(b"\r\n\r\n")
    if end < 0 or end > MAX_HEAD:
        if len(buffer) > MAX_HEAD:
            raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers too long")
        return len(buffer) + 1
    first, *lines = buffer[:end].decode("latin-1").split("\r\n")
    try:
        verb, target, version = first.split(" ")
    except ValueError:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "no request line of HTTP") from None
    if not target.isprintable():  # it may become part of a header of the answer
        raise BadRequest(HTTPStatus.BAD_REQUEST, "control characters in the request line")
    if verb not in ("GET", "POST"):
        raise BadRequest(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and POST")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header is malformed")
        name = name.lower()
        if name == "content-length" and name in headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "two lengths of one body")
        headers[name] = text.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.NOT_IMPLEMENTED, "bodies need a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or len(length) > 9:
        raise BadRequest(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
    size = int(length)
    if size > MAX_BODY:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body too long")
    stop = end + 4 + size
    if len(buffer) < stop:
        return stop
    body = bytes(buffer[end + 4 : stop])
    del buffer[:stop]
    connection = headers.get("connection", "").lower()
    stays = connection != "close" and (version == "HTTP/1.1" or connection == "keep-alive")
    return _request(verb, target, headers, body, peer), stays


def _request(
    verb: str, target: str, headers: Mapping[str, str], body: bytes, peer: str
) -> WebRequest:
    content_type, host = headers.get("content-type", ""), headers.get("host", "")
    try:
        parts = urlsplit(target)
        found = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        if body and content_type.partition(";")[0].strip() in (
            "",
            "application/x-www-form-urlencoded",
        ):
            text = body.decode("utf-8")
            found += parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"malformed parameters: {error}") from None
    parameters: dict[str, str] = {}
    for name, value in found:  # the first value of a name counts, as in a servlet
        parameters.setdefault(name, value)
    from_other_page = headers.get("sec-fetch-site", "none").lower() not in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        from_other_page = True
    return WebRequest(parts.path, target, parameters, peer, verb, host, from_other_page)
