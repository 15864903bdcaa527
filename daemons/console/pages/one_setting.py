"""The change of one setting of a server, by its name: form, check and plan."""

from mq.client.operations import masking
from mq.daemons.console.call import Call
from mq.daemons.console.parsing import BadField
from mq.daemons.console.route import N_, Field, Plan, Query, Sheet, Values

FIELDS = (
    Field("key", N_("Setting"), required=True, limit=200),
    Field("value", N_("New value"), help=N_("Empty: an empty value."), limit=4000),
)
QUERY = (Query("key", about=N_("The setting to fill in.")),)


async def initial(call: Call) -> Values:
    """Return the setting of the address, with an empty new value."""
    return {"key": call.query.get("key") or "", "value": None}


def check(call: Call, values: Values) -> None:
    """Raises BadField for names and values that would set several settings."""
    for name in ("key", "value"):
        if any(sign in (values[name] or "") for sign in "\r\n"):
            raise BadField(name, call.text("expected one line"))
    if "=" in values["key"]:
        raise BadField("key", call.text("expected a name without ="))


def plan(
    call: Call,
    values: Values,
    before: str,
    lines: tuple[str, str],
    command: tuple[str, ...],
    **names: object,
) -> Plan:
    """Return the plan of a change, secrets masked.

    The first of the `lines` is a key of the catalogue with %(key)s, %(old)s, %(new)s and `names`,
    the second describes the effect on other servers; `-k` and `-v` are inserted after the first
    three words of the `command`."""
    key, value = values["key"], values["value"] or ""
    secret = masking.is_secret(key, before) or masking.is_secret(key, value)
    old, new = (masking.MASK, masking.MASK) if secret else (before, value)
    line = call.text(lines[0], key=key, old=old or '""', new=new or '""', **names)
    heads = (call.text("Setting"), call.text("Before"), call.text("After"))
    return Plan(
        (line, lines[1]),
        (Sheet(heads, [(key, old, new)]),),
        (*command[:3], "-k", key, "-v", new, *command[3:]),
        "" if before != value else call.text("It has this value already."),
    )
