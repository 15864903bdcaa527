"""The JSON of answers, as TubeMQ's."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mq.daemons.tube.master.catalog import ChangeRefused, DataCode

Row = dict[str, Any]


def data(rows: Sequence[Mapping[str, Any]]) -> Row:
    """Rows, and how many."""
    return {"result": True, "errCode": 0, "errMsg": "OK", "data": list(rows), "count": len(rows)}


def success(text: str = "OK") -> Row:
    return {"result": True, "errCode": 0, "errMsg": text}


async def outcome(work: Callable[[], Awaitable[object]], **who: Any) -> Row:
    """What came of a change of one record, which `who` names."""
    code, text = DataCode.SUCCESS, "Ok!"
    try:
        await work()
    except ChangeRefused as refused:
        code, text = refused.code, str(refused)
    return {**who, "success": code == DataCode.SUCCESS, "errCode": code, "errInfo": text}
