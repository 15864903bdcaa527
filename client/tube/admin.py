"""Administrative requests to TubeMQ masters and brokers, over HTTP by method name.

The caller blocks, and sends one request at a time, as commands do. Answers are JSON; in a change
each broker or topic has a result of its own, and single failures raise nothing at this level.
"""

import http.client
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from mq.client.errors import BadAnswer, ClientError, ConnectError, MQError, reason_of
from mq.protocol.tube.codes import BROKER_WEB_PORT, MASTER_WEB_PORT
from mq.protocol.tube.strings import Address

#: The limit of an answer in bytes.
MAX_ANSWER = 64 * 1024 * 1024
_MOST_REDIRECTS = 3

Row = Mapping[str, Any]


class AdminRefused(MQError):
    """A server refuses a request; `code` is the server's own code, usually that of HTTP."""

    def __init__(self, address: str, code: int, text: str) -> None:
        super().__init__(f"{address}: {text or f'refused with the code {code}'}")
        self.address = address
        self.code = code
        self.text = text


class Unreachable(ConnectError):
    """No server answers at the address."""

    hint = "check that it runs there, or say where: -n HOST:8715 --web-port PORT"


class ChangesFailed(Exception):
    """Some parts of a change failed: a text for each."""

    def __init__(self, failures: Sequence[str]) -> None:
        super().__init__("; ".join(failures))
        self.failures = failures


class TubeAdmin:
    """Sends requests to the active one of several masters, and to brokers.

    Args:
        masters: their hosts are tried in this order until one answers.
        web_port: the port of the masters' web interface.
        token: their confModAuthToken, required for changes.
        user: the name recorded with changes: letters, digits, underscores.
        timeout: seconds for each answer.
    """

    def __init__(
        self,
        masters: Sequence[Address],
        *,
        web_port: int = MASTER_WEB_PORT,
        token: str = "",
        user: str = "mq",
        timeout: float = 5.0,
    ) -> None:
        self._masters = [
            Address(host, web_port) for host in dict.fromkeys(one.host for one in masters)
        ]
        self._named = {one.host: str(one) for one in masters}
        self._token = token
        self._user = user
        self._timeout = timeout

    def query(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the answer of a master. Raises ConnectError, BadAnswer, AdminRefused."""
        failure: MQError | None = None
        for master in self._masters:
            try:
                return self._ask(master, "/webapi.htm", method, parameters)
            except ConnectError as error:
                if error.address == str(master):
                    asked, reason = self._named[master.host], f"at its port {master.port}"
                else:
                    asked, reason = error.address, f"where {master} says the active master is"
                failure = Unreachable(asked, f"{reason}: {error.reason}")
        assert failure is not None
        raise failure

    def change(self, method: str, *, adds: bool = False, **parameters: object) -> list[Row]:
        """Make a change; returns the results.

        Raises what `query` raises, and ChangesFailed if some parts failed.
        """
        who = {"createUser" if adds else "modifyUser": self._user}
        answer = self.query(method, confModAuthToken=self._token, **who, **parameters)
        rows: list[Row] = _rows(answer)
        failures = [_failure(row) for row in rows if row.get("success") is False]
        if failures:
            raise ChangesFailed(failures)
        return rows

    def query_broker(self, broker: Address, method: str, **parameters: object) -> dict[str, Any]:
        """Return the answer of a broker, at its web port. Raises what `query` raises."""
        return self._ask(broker, "/broker.htm", method, parameters)

    def change_broker(self, broker: Address, method: str, **parameters: object) -> dict[str, Any]:
        """Make a change at a broker. Raises what `query` raises."""
        more = {"confModAuthToken": self._token, "modifyUser": self._user, **parameters}
        return self._ask(broker, "/broker.htm", method, more)

    # ------------------------------------------------------------------------------------------

    def brokers(self) -> list[Row]:
        """Return the configured brokers, with their state (admin_query_broker_run_status)."""
        return _rows(self.query("admin_query_broker_run_status"))

    def broker_addresses(self, ids: Iterable[int] = ()) -> dict[int, Address]:
        """Return the web addresses of brokers by id; of all, or of those given.

        Raises ClientError for an id that is not configured.
        """
        found = {
            int(row["brokerId"]): Address(
                str(row["brokerIp"]), int(row.get("brokerWebPort", BROKER_WEB_PORT))
            )
            for row in self.brokers()
        }
        wanted = list(ids) or list(found)
        for number in wanted:
            if number not in found:
                known = ", ".join(map(str, sorted(found))) or "there are none"
                raise ClientError(f"there is no broker {number} (known: {known})")
        return {number: found[number] for number in wanted}

    def topics(self, topic: str = "") -> list[Row]:
        """Return topics with the brokers that have them (admin_query_topic_info)."""
        return _rows(self.query("admin_query_topic_info", topicName=topic))

    def _ask(
        self, address: Address, path: str, method: str, parameters: Mapping[str, object]
    ) -> dict[str, Any]:
        texts = {
            name: _text(value) for name, value in parameters.items() if value not in (None, "")
        }
        # A POST: tokens must not appear in the logs of proxies.
        body = urlencode({"method": method, **texts})
        for _ in range(_MOST_REDIRECTS):
            status, headers, data = self._post(address, path, body)
            if status not in (301, 302, 303, 307, 308):
                break
            address, path = _redirected(address, headers.get("location", ""), path)
        else:
            raise BadAnswer(str(address), f"masters redirect more than {_MOST_REDIRECTS} times")
        return _answer(str(address), status, data)

    def _post(
        self, address: Address, path: str, body: str
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=self._timeout)
        try:
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            data = response.read(MAX_ANSWER + 1)
        except TimeoutError:
            raise Unreachable(str(address), f"no answer within {self._timeout:g} s") from None
        except OSError as error:
            raise Unreachable(str(address), reason_of(error)) from None
        except (http.client.HTTPException, ValueError) as error:
            raise BadAnswer(str(address), f"not HTTP: {error!r}") from None
        finally:
            connection.close()
        if len(data) > MAX_ANSWER:
            raise BadAnswer(str(address), f"more than {MAX_ANSWER} bytes")
        return response.status, response.headers, data


def _redirected(address: Address, location: str, path: str) -> tuple[Address, str]:
    """Return the address of the active master from another one's redirection. Raises BadAnswer."""
    try:
        target = urlsplit(location)
        if target.scheme == "http" and target.hostname:
            return Address(target.hostname, target.port or 80), target.path or path
    except ValueError:  # from an invalid port or address
        pass
    raise BadAnswer(str(address), f"a redirection to {location[:200]!r}")


def _answer(address: str, status: int, data: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(data)
    except ValueError:
        raise BadAnswer(address, f"status {status}, and not JSON: is this its web port?") from None
    if not isinstance(answer, dict):
        raise BadAnswer(address, "JSON, but not an object")
    if answer.get("result") is not True:
        code = answer.get("errCode")
        raise AdminRefused(
            address, code if isinstance(code, int) else status, str(answer.get("errMsg", ""))
        )
    return answer


def _rows(answer: Mapping[str, Any]) -> list[Row]:
    """Return the rows of an answer; empty if it has none."""
    found = answer.get("data", answer.get("dataSet", []))
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _failure(row: Row) -> str:
    what = " ".join(str(row[name]) for name in ("topicName", "groupName") if row.get(name))
    where = f"broker {row['brokerId']}" if row.get("brokerId") else ""
    return f"{' at '.join(filter(None, (what, where)))}: {row.get('errInfo', 'refused')}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
