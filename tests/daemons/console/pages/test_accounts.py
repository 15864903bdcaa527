"""Pages of accounts: a real broker with the accounts of 4.9, and a scripted one of 5.x."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from mq.daemons.channel import Channel
from mq.daemons.console.collector.snapshot import BrokerRow, ClusterRow, Snapshot
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import AclConfig, PlainAccessConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests.client.scripted import scripted
from tests.daemons.console.pages.known import AT, put
from tests.daemons.console.site import Consoles, Site

HOSTILE = '"><img src=x onerror=alert(1)>{{7*7}}\u202e\0'
SECRET = "very-secret-key"


def known(site: Site, **brokers: str) -> None:
    """Give the console these brokers, by name, as a cluster called c."""
    put(
        site,
        Snapshot(
            at=AT,
            clusters=(ClusterRow("c", tuple(brokers)),),
            brokers=tuple(BrokerRow("c", name, 0, at, "master") for name, at in brokers.items()),
        ),
    )


class Keeper:
    """A broker of 4.9 with accounts that returns secrets, as 4.9.7 does."""

    def __init__(self, *accounts: PlainAccessConfig, white: tuple[str, ...] = ()) -> None:
        self.accounts = {one.access_key: one for one in accounts}
        self.white = list(white)
        self.changes: list[Mapping[str, str]] = []

    def handlers(self) -> dict[int, Handler]:
        return {
            int(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG): self.told,
            int(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG): self.changed,
            int(RequestCode.DELETE_ACL_CONFIG): self.changed,
            int(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG): self.changed,
        }

    def told(self, request: Command, channel: Channel) -> Command:
        config = AclConfig(
            global_white_addrs=self.white, plain_access_configs=list(self.accounts.values())
        )
        return request.reply(0, None, config.encode())

    def changed(self, request: Command, channel: Channel) -> Command:
        self.changes.append(request.fields)
        return request.reply(0)


def refusing(request: Command, channel: Channel) -> Command:
    """As PlainPermissionManager, with the secret in its text."""
    remark = f"The secretKey={request.fields['secretKey']} value length should longer than 6"
    return request.reply(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, remark=remark)


class Users:
    """A broker of 5.x: users with passwords, policies."""

    def __init__(self, name: str = "alice") -> None:
        self.users = [
            {
                **{"username": name, "password": SECRET},
                **{"userType": "Normal", "userStatus": "enable"},
            }
        ]
        self.acls = [
            {
                "subject": f"User:{name}",
                "policies": [
                    {
                        "policyType": "Custom",
                        "entries": [
                            {
                                **{"resource": f"Topic:{name}", "actions": ["Pub", "Sub"]},
                                **{"sourceIps": None, "decision": "Allow"},
                            }
                        ],
                    }
                ],
            }
        ]
        self.changes: list[tuple[int, Mapping[str, str], object]] = []

    def handlers(self) -> dict[int, Handler]:
        def answer(value: object) -> Handler:
            return lambda request, channel: request.reply(0, None, json.dumps(value).encode())

        def one(request: Command, channel: Channel) -> Command:
            found = [u for u in self.users if u["username"] == request.fields["username"]]
            return request.reply(0, None, json.dumps(found[0]).encode() if found else b"")

        def policies(request: Command, channel: Channel) -> Command:
            found = [a for a in self.acls if a["subject"] == request.fields["subject"]]
            return request.reply(0, None, json.dumps(found[0]).encode() if found else b"")

        def changed(request: Command, channel: Channel) -> Command:
            body = json.loads(bytes(request.body)) if request.body else None
            self.changes.append((request.code, request.fields, body))
            return request.reply(0)

        C = RequestCode
        return {
            int(C.AUTH_LIST_USER): answer(self.users),
            int(C.AUTH_LIST_ACL): answer(self.acls),
            int(C.AUTH_GET_USER): one,
            int(C.AUTH_GET_ACL): policies,
            **dict.fromkeys(
                map(
                    int,
                    (
                        *(C.AUTH_CREATE_USER, C.AUTH_UPDATE_USER, C.AUTH_DELETE_USER),
                        *(C.AUTH_CREATE_ACL, C.AUTH_UPDATE_ACL, C.AUTH_DELETE_ACL),
                    ),
                ),
                changed,
            ),
        }


def account(name: str = "account-one", **more: object) -> PlainAccessConfig:
    return PlainAccessConfig(access_key=name, secret_key=SECRET, **more)  # type: ignore[arg-type]


def test_accounts_are_shown_by_broker_with_what_differs_and_no_secret(console: Consoles) -> None:
    async def main() -> None:
        one = Keeper(account(topic_perms=["A=PUB"]), account("only-here"), white=("10.*",))
        other = Keeper(account(topic_perms=["A=SUB"]))
        async with (
            scripted(one.handlers()) as a,
            scripted(other.handlers()) as b,
            console() as site,
        ):
            known(site, a=a, b=b)
            page = await site.get("/accounts")
            assert page.status == 200, page.text
            assert SECRET not in page.text
            data = (await site.api("/accounts")).json
            assert SECRET not in json.dumps(data)
            by_name = {row["name"]: row for row in data["accounts"]}
            assert by_name["only-here"]["missing"] == ["b 0"]
            (difference,) = by_name["account-one"]["differing"]
            assert difference == ["topic_perms", "b 0", "A=SUB"]
            assert [row["accounts"] for row in data["atBrokers"]] == [2, 1]
            assert [row["users"] for row in data["atBrokers"]] == [None, None]
            assert data["atBrokers"][0]["addresses"] == ["10.*"]
            assert SECRET not in (await site.get("/accounts?format=csv")).text

    asyncio.run(main())


def test_an_account_is_made_at_each_broker_and_its_secret_stays_unseen(console: Consoles) -> None:
    async def main() -> None:
        keeper = Keeper(account())
        strict = Keeper()
        refused = {**strict.handlers(), int(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG): refusing}
        async with (
            scripted(keeper.handlers()) as a,
            scripted(refused) as b,
            console() as site,
        ):
            known(site, a=a, b=b)
            form = await site.get("/new/account?access_key=account-one")
            assert SECRET not in form.text
            fields = {"secret_key": "another-secret", "topic_perms": "A=PUB\nB=DENY"}
            preview = await site.submit(form, fields)
            assert preview.status == 200, preview.text
            assert "another-secret" not in preview.text
            assert ["a 0", "topicPerms", "", "A=PUB, B=DENY"] in preview.tables()[0]
            result = await site.submit(preview)
            assert "another-secret" not in result.text
            rows = result.tables()[-1]
            assert [row[1] for row in rows] == ["done", "failed"]
            assert "******" in rows[1][2]
            assert keeper.changes[0]["secretKey"] == "another-secret"
            form = await site.get("/new/account?access_key=account-one&cluster=c")
            preview = await site.submit(form, {"topic_perms": "A=SUB"})
            assert SECRET not in preview.text
            result = await site.submit(preview)
            assert keeper.changes[1]["secretKey"] == SECRET  # 4.9.7 requires it in each change
            assert SECRET not in result.text + json.dumps(site.audit)
            assert keeper.changes[0]["topicPerms"] == "A=PUB,B=DENY"
            assert "another-secret" not in json.dumps(site.audit)
            ends = [one["state"] for one in site.audit if one.get("state", "begins") != "begins"]
            assert ends == ["partly done"] * 2

    asyncio.run(main())


def test_what_a_broker_would_misread_is_refused_at_the_form(console: Consoles) -> None:
    async def main() -> None:
        keeper = Keeper()
        async with scripted(keeper.handlers()) as a, console() as site:
            known(site, a=a)
            form = await site.get("/new/account")
            for fields in (
                {"access_key": "short"},
                {"access_key": "long-enough", "secret_key": "short"},
                {"access_key": "long-enough", "topic_perms": "A"},
                {"access_key": "long-enough", "topic_perms": "A=ALL"},
                {"access_key": "long-enough", "group_perms": "A=PUB,B=SUB"},
            ):
                assert (await site.submit(form, fields)).status == 400, fields
            assert keeper.changes == []

    asyncio.run(main())


def test_an_account_is_deleted_by_its_name_and_addresses_are_set(console: Consoles) -> None:
    async def main() -> None:
        keeper = Keeper(account(), white=("10.*",))
        async with scripted(keeper.handlers()) as a, console() as site:
            known(site, a=a)
            address = "/accounts/delete?access_key=account-one"
            done = await site.change(address, typed="account-one")
            assert done.status == 200, done.text
            assert keeper.changes[-1]["accessKey"] == "account-one"
            await site.change("/accounts/addresses", {"addresses": "10.*\n192.168.0.7"})
            assert keeper.changes[-1]["globalWhiteAddrs"] == "10.*,192.168.0.7"

    asyncio.run(main())


def test_users_and_policies_are_shown_without_passwords(console: Consoles) -> None:
    async def main() -> None:
        async with scripted(Users().handlers()) as a, console() as site:
            known(site, a=a)
            page = await site.get("/accounts")
            assert page.status == 200, page.text
            assert SECRET not in page.text
            data = (await site.api("/accounts")).json
            assert SECRET not in json.dumps(data)
            assert [row["name"] for row in data["users"]] == ["alice"]
            (policy,) = data["policies"]
            assert (policy["name"], policy["resource"]) == ("User:alice", "Topic:alice")
            assert ["actions", "Pub, Sub"] in policy["settings"]

    asyncio.run(main())


def test_users_and_policies_are_made_changed_and_deleted(console: Consoles) -> None:
    async def main() -> None:
        broker = Users()
        C = RequestCode
        async with scripted(broker.handlers()) as a, console() as site:
            known(site, a=a)

            def last() -> tuple[int, object]:
                return broker.changes[-1][0], broker.changes[-1][2]

            done = await site.change("/new/user", {"username": "bob", "password": SECRET})
            assert SECRET not in done.text
            code, body = last()
            assert code == C.AUTH_CREATE_USER
            assert body["password"] == SECRET  # type: ignore[index]
            await site.change("/new/user?username=alice", {"user_status": "disable"})
            assert last()[0] == C.AUTH_UPDATE_USER
            await site.change("/accounts/delete-user?username=alice", typed="alice")
            assert last()[0] == C.AUTH_DELETE_USER
            fields = {"resources": "Topic:A\nGroup:B", "actions": "pub, get"}
            await site.change("/new/policy", {"subject": "User:bob", **fields})
            code, body = last()
            assert code == C.AUTH_CREATE_ACL
            entries = body["policies"][0]["entries"]  # type: ignore[index]
            assert [(one["resource"], one["actions"]) for one in entries] == [
                ("Topic:A", ["Pub", "Get"]),
                ("Group:B", ["Pub", "Get"]),
            ]
            address = "/new/policy?subject=User:alice&resource=Topic:alice"
            form = await site.get(address)
            assert "Pub, Sub" in form.text
            await site.submit(await site.submit(form, {"decision": "Deny"}))
            assert last()[0] == C.AUTH_UPDATE_ACL
            address = "/accounts/delete-policy?subject=User:alice&resource=Topic:alice"
            await site.change(address, typed="User:alice")
            assert last()[0] == C.AUTH_DELETE_ACL
            assert broker.changes[-1][1]["resource"] == "Topic:alice"
            wrong = await site.submit(
                await site.get("/new/policy"),
                {"subject": "User:bob", "resources": "Topic:A", "actions": "Write"},
            )
            assert wrong.status == 400
            assert SECRET not in json.dumps(site.audit)

    asyncio.run(main())


def test_hostile_accounts_users_and_policies_are_text(console: Consoles) -> None:
    async def main() -> None:
        hostile = Keeper(
            account(HOSTILE, white_remote_address=HOSTILE, topic_perms=[HOSTILE]), white=(HOSTILE,)
        )
        handlers = {**hostile.handlers(), **Users(HOSTILE).handlers()}
        async with scripted(handlers) as a, console() as site:
            known(site, **{HOSTILE: a})
            page = await site.get("/accounts")
            assert page.status == 200, page.text
            assert page.soup.find("img") is None
            assert len(page.soup.find_all("script")) == 1
            assert not {"\u202e", "\0"} & set(page.text)
            assert page.soup.get_text().count("onerror=alert(1)") > 5

    asyncio.run(main())


def test_a_broker_that_keeps_nothing_says_so_and_the_rest_is_there(
    console: Consoles, tmp_path: Path
) -> None:
    async def main() -> None:
        async with scripted(Keeper(account()).handlers()) as a, console() as site:
            known(site, a=a, nothing=site.pair.broker.address)
            data = (await site.api("/accounts")).json
            assert data["atBrokers"][0]["accounts"] == 1
            assert len(data["accounts"]) == 1
            assert (await site.get("/accounts")).status == 200

    asyncio.run(main())
