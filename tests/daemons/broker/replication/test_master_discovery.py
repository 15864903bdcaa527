"""Which master a slave follows when name servers disagree."""

from mq.daemons.broker.replication.master_addresses import MasterAddresses
from mq.daemons.broker.replication.master_discovery import MasterDiscovery

OWN = "10.0.0.9:10911"
OLD, OLD_HA = "10.0.0.1:10911", "10.0.0.1:10912"
NEW, NEW_HA = "10.0.0.2:10911", "10.0.0.2:10912"


def named(*, fixed: str = "") -> tuple[MasterDiscovery, MasterAddresses]:
    addresses = MasterAddresses(fixed)
    return MasterDiscovery(addresses, OWN), addresses


def test_a_name_server_that_does_not_know_the_master_yet_removes_nothing() -> None:
    masters, addresses = named()
    masters.reported("ns1", OLD, OLD_HA)
    assert addresses.changed.is_set()
    addresses.changed.clear()
    masters.reported("ns2", None, None)
    assert (addresses.address, addresses.ha_address) == (OLD, OLD_HA)
    assert not addresses.changed.is_set()


def test_the_followed_master_is_kept_while_any_name_server_reports_it() -> None:
    masters, addresses = named()
    masters.reported("ns1", OLD, OLD_HA)
    masters.reported("ns2", OLD, OLD_HA)
    masters.reported("ns1", NEW, NEW_HA)
    assert addresses.address == OLD
    masters.reported("ns2", NEW, NEW_HA)
    assert (addresses.address, addresses.ha_address) == (NEW, NEW_HA)


def test_a_name_server_that_is_not_asked_any_more_does_not_count() -> None:
    masters, addresses = named()
    masters.reported("ns1", OLD, OLD_HA)
    masters.reported("ns2", NEW, NEW_HA)
    masters.forget("ns1")
    assert addresses.address == NEW


def test_a_master_that_is_not_reported_any_more_keeps_its_replication_address() -> None:
    masters, addresses = named()
    masters.reported("ns1", OLD, OLD_HA)
    masters.reported("ns1", None, None)
    assert (addresses.address, addresses.ha_address) == ("", OLD_HA)


def test_a_broker_does_not_follow_itself() -> None:
    masters, addresses = named()
    masters.reported("ns1", OWN, "10.0.0.9:10912")
    assert (addresses.address, addresses.ha_address) == ("", "")


def test_a_fixed_replication_address_is_not_changed() -> None:
    masters, addresses = named(fixed="10.0.0.7:10912")
    masters.reported("ns1", OLD, OLD_HA)
    assert (addresses.address, addresses.ha_address) == (OLD, "10.0.0.7:10912")


def test_an_announced_master_is_followed_until_a_name_server_reports_one() -> None:
    masters, addresses = named()
    masters.announced(OLD, OLD_HA)
    assert (addresses.address, addresses.ha_address) == (OLD, OLD_HA)
    masters.reported("ns1", NEW, NEW_HA)
    assert (addresses.address, addresses.ha_address) == (NEW, NEW_HA)
    masters.reported("ns1", None, None)
    assert (addresses.address, masters.last) == ("", NEW)  # the named one disappeared


def test_a_reported_master_has_priority_over_an_announced_one() -> None:
    masters, addresses = named()
    masters.reported("ns1", OLD, OLD_HA)
    masters.announced(NEW, NEW_HA)
    assert addresses.address == OLD
