"""The walks count calls between modules, and stop at the table port."""

from tests.bench.walks import Call, Walk

CALLS = (
    Call("", "farthing.connector.steps", "handle", []),
    Call("farthing.connector.steps", "farthing.connector.steps", "_steps",
         ["farthing.connector.steps"]),
    Call("farthing.connector.steps", "farthing.store.sqlite", "get", ["farthing.connector.steps"]),
    Call("farthing.store.sqlite", "farthing.store.limits", "check_key",
         ["farthing.store.sqlite", "farthing.connector.steps"]),
)  # fmt: skip


def test_a_call_within_a_module_is_no_move() -> None:
    walk = Walk("a packet", CALLS)
    assert walk.moves == 2
    assert walk.modules == [
        "farthing.connector.steps", "farthing.store.sqlite", "farthing.store.limits"
    ]  # fmt: skip


def test_what_an_engine_does_is_below_the_port() -> None:
    above = Walk("a packet", CALLS).above_port
    assert above.modules == ["farthing.connector.steps"]
    assert above.moves == 0
