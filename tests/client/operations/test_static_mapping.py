from collections import Counter

import pytest

from mq.client.operations.static_mapping import (
    Configs,
    Inconsistent,
    before,
    epoch_and_count,
    grown,
    logical_offset,
    queues,
    remapped,
)
from mq.protocol.bodies import LogicQueueMappingItem

NOW = 1_700_000_000_000


def leaders(configs: Configs) -> dict[int, str | None]:
    return {queue_id: items[-1].bname for queue_id, items in queues(configs).items()}


def made(count: int = 5, brokers: tuple[str, ...] = ("a", "b")) -> Configs:
    return grown("T", count, brokers, {}, NOW).broker_config_map


def test_a_new_topic_is_spread_evenly() -> None:
    plan = grown("T", 5, ["b", "a"], {}, NOW)
    configs = plan.broker_config_map
    assert (plan.type, plan.epoch) == ("CREATE_OR_UPDATE", NOW)
    assert leaders(configs) == {0: "a", 1: "b", 2: "a", 3: "b", 4: "a"}
    assert {name: config.write_queue_nums for name, config in configs.items()} == {"a": 3, "b": 2}
    assert epoch_and_count("T", configs) == (NOW, 5)


def test_more_queues_go_where_there_are_least_and_leave_the_old_ones() -> None:
    configs = made(3, ("a",))
    old = leaders(configs)
    plan = grown("T", 6, ["a", "b"], configs, NOW)
    assert leaders(configs) == old | {3: "b", 4: "b", 5: "b"}
    assert plan.epoch == NOW + 1000
    assert epoch_and_count("T", configs) == (NOW + 1000, 6)


@pytest.mark.parametrize("count", [5, 4])
def test_a_static_topic_never_gets_fewer_queues(count: int) -> None:
    with pytest.raises(Inconsistent, match="has 5 queues: a static topic can only get more"):
        grown("T", count, ["a"], made(), NOW)


def test_queues_move_to_the_targets_and_keep_their_past() -> None:
    configs = made()
    plan = remapped("T", ["b", "c"], configs, NOW)
    assert (plan.type, plan.epoch) == ("REMAPPING", NOW + 1000)
    assert Counter(leaders(configs).values()) == {"b": 3, "c": 2}
    assert (plan.broker_to_map_in, plan.broker_to_map_out) == ({"b", "c"}, {"a"})
    moved = queues(configs)[0]
    assert [(item.bname, item.gen, item.logic_offset) for item in moved] == [
        ("a", 0, 0),
        (leaders(configs)[0], 1, -1),
    ]
    details = {name: config.mapping_detail for name, config in configs.items()}
    old, new = details["a"], details[moved[-1].bname or ""]
    assert old is not None and new is not None
    assert old.hosted_queues[0] is new.hosted_queues[0]


def test_nothing_moves_where_all_is_as_wanted() -> None:
    configs = made()
    plan = remapped("T", ["a", "b"], configs, NOW)
    assert plan.broker_to_map_in == plan.broker_to_map_out == set()
    assert leaders(configs) == leaders(made())


def test_what_there_is_is_kept_as_a_plan_that_changes_nothing() -> None:
    configs = made()
    assert before("T", configs, NOW + 5).epoch == NOW
    assert before("T", {}, NOW + 5).broker_config_map == {}


@pytest.mark.parametrize(
    ("end", "offset"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (12_345, 20_000)]
)
def test_a_new_leader_begins_beyond_what_the_old_one_gave(end: int, offset: int) -> None:
    assert logical_offset(LogicQueueMappingItem(queue_id=0, bname="a"), end) == offset


def test_what_brokers_do_not_agree_about_is_refused() -> None:
    def broken(change: str) -> Configs:
        configs = made()
        detail = configs["a"].mapping_detail
        other = configs["b"].mapping_detail
        assert detail is not None and other is not None
        if change == "epoch":
            detail.epoch += 1
        elif change == "name":
            detail.bname = "z"
        elif change == "dirty":
            detail.dirty = True
        elif change == "ordinary":
            configs["a"].mapping_detail = None
        elif change == "missing":
            del detail.hosted_queues[0]
        elif change == "reused":
            detail.hosted_queues[2][0].queue_id = detail.hosted_queues[0][0].queue_id
        elif change == "overflow":
            configs["a"].write_queue_nums = configs["a"].read_queue_nums = 1
        else:
            detail.hosted_queues[0].append(LogicQueueMappingItem(bname="a", queue_id=9))
        return configs

    for change in ("epoch", "name", "dirty", "ordinary", "missing", "reused", "overflow", "gen"):
        with pytest.raises(Inconsistent):
            remapped("T", ["a", "b"], broken(change), NOW)
