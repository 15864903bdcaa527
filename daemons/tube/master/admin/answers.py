"""The JSON of answers, in TubeMQ's form."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mq.daemons.tube.master.catalog import ChangeRefused, DataCode
from mq.daemons.tube.master.records import Audit, touched

Row = dict[str, Any]


def data(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Return rows and their number."""
    return {"result": True, "errCode": 0, "errMsg": "OK", "data": list(rows), "count": len(rows)}


def success(text: str = "OK") -> Row:
    return {"result": True, "errCode": 0, "errMsg": text}


def who(audit: Audit) -> Row:
    """Return the users who created and last changed a record, and the times."""
    return {
        "createUser": audit.create_user,
        "createDate": audit.create_date,
        "modifyUser": audit.modify_user,
        "modifyDate": audit.modify_date,
    }


def stamped(old: Audit, by: Audit) -> Audit:
    """Return the audit of a record that this request changes."""
    return touched(
        old,
        user=by.modify_user,
        date=by.modify_date,
        serial=by.serial,
        version=by.data_version,
    )


async def outcome(work: Callable[[], Awaitable[object]], **who: Any) -> Row:
    """Return the outcome of a change of one record; `who` has its names."""
    code, text = DataCode.SUCCESS, "Ok!"
    try:
        await work()
    except ChangeRefused as refused:
        code, text = refused.code, str(refused)
    return {**who, "success": code == DataCode.SUCCESS, "errCode": code, "errInfo": text}
