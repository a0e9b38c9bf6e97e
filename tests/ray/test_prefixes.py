"""Chains of prefixes, the table of replicas, and the configuration of an application."""

import pytest

from rullama.ray._config import AppConfig
from rullama.ray._prefixes import BLOCK, MOST_BLOCKS, PrefixTable, prefix_chain


def chat(*texts):
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[i % 2], "content": t} for i, t in enumerate(texts)]}


def test_the_next_turn_of_a_conversation_extends_its_chain():
    first = prefix_chain(chat("a" * 3 * BLOCK))
    second = prefix_chain(chat("a" * 3 * BLOCK, "b" * BLOCK, "c" * BLOCK))
    assert len(first) == 3 and second[:3] == first and len(second) == 5


def test_a_difference_changes_all_blocks_after_it():
    one = prefix_chain({"prompt": "a" * 4 * BLOCK})
    other = prefix_chain({"prompt": "a" * 2 * BLOCK + "b" + "a" * 2 * BLOCK})
    assert one[:2] == other[:2] and not set(one[2:]) & set(other[2:])


def test_keys_and_models_share_no_prefix():
    body = {"prompt": "a" * 2 * BLOCK}
    chains = [prefix_chain(body, "ann"), prefix_chain(body, "bob"), prefix_chain({"model": "m"} | body)]
    assert len({one for chain in chains for one in chain}) == sum(map(len, chains))


def test_chains_are_short_and_short_prompts_have_none():
    assert prefix_chain({"prompt": "a" * (BLOCK - 1)}) == ()
    assert prefix_chain({"prompt": [1, 2, 3]}) == ()
    assert len(prefix_chain({"prompt": "a" * BLOCK * 2 * MOST_BLOCKS})) == MOST_BLOCKS


def test_the_longest_known_prefix_of_a_live_replica_wins():
    table = PrefixTable(100)
    table.put((1, 2), "a")
    table.put((1, 2, 3), "b")
    assert table.best((1, 2, 3, 4), {"a", "b"}) == "b"
    assert table.best((1, 9), {"a", "b"}) == "b"
    assert table.best((1, 2, 3), {"a"}) is None
    assert table.best((7,), {"a", "b"}) is None
    assert table.best((), {"a"}) is None


def test_the_table_forgets_the_ends_of_old_chains_first():
    table = PrefixTable(3)
    table.put((1, 2), "a")
    table.put((5, 6), "b")
    assert len(table) == 3
    assert table.best((1, 2), {"a"}) == "a" and table.best((2,), {"a"}) is None
    assert table.best((5, 6), {"b"}) == "b"


def test_settings_are_checked():
    with pytest.raises(TypeError, match="there is no setting slot"):
        AppConfig.of({"model": "m", "slot": 1})
    with pytest.raises(TypeError, match="model is missing"):
        AppConfig.of({})
    with pytest.raises(ValueError, match="max_replicas is 1, expected at least 2"):
        AppConfig.of({"model": "m", "min_replicas": 2})


def test_settings_become_flags_and_a_configuration_file():
    config = AppConfig.of(
        {"model": "m", "backend": "cpu", "num_cpus": 3, "device": 0, "config": {"server.page": False}}
    )
    assert config.engine_settings()["server"] == {
        "max_queue": 64,
        "max_queue_per_key": 64,
        "drain_s": 30,
        "page": False,
    }
    flags = config.engine_flags()
    assert flags[flags.index("--threads") + 1] == "3" and flags[flags.index("--device") + 1] == "0"
