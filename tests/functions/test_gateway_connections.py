"""Clients behind API Gateway: what becomes of frames, in order and side by side."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from farthing.aws.connections import GatewayConnections
from farthing.ports.connections import Delivery
from tests.functions.gateway import BROKEN, GONE, LARGE, REFUSED, THROTTLED, Management, failure

SLOW = THROTTLED[0]


class World:
    def __init__(self) -> None:
        self.gateway = Management()
        self.endpoints: list[str] = []
        self.waits: list[float] = []
        self.connections = GatewayConnections(
            "https://example.com/relay",
            client=self._client,
            sleep=self._sleep,
            jitter=lambda: 0.5,
            clock=lambda: sum(self.waits),
        )

    def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def _client(self, endpoint: str) -> Any:
        self.endpoints.append(endpoint)
        return self.gateway


@pytest.fixture
def world() -> World:
    return World()


def test_the_client_is_made_at_the_first_post_and_once(world: World) -> None:
    assert world.endpoints == []

    world.connections.post("a", ["1", "2"])
    world.connections.close("a")

    assert world.endpoints == ["https://example.com/relay"]


class TestPost:
    def test_a_frame_is_posted_to_its_client(self, world: World) -> None:
        assert world.connections.post("a", ["1"]) is Delivery.DELIVERED
        assert world.gateway.posted == [("a", "1")]

    def test_posting_no_frames_succeeds(self, world: World) -> None:
        assert world.connections.post("a", []) is Delivery.DELIVERED

    def test_each_frame_is_posted_once(self, world: World) -> None:
        frames = [str(number) for number in range(100)]

        assert world.connections.post("a", iter(frames)) is Delivery.DELIVERED
        assert sorted(frame for _, frame in world.gateway.posted) == sorted(frames)

    def test_a_few_go_in_order(self, world: World) -> None:
        threads = set()
        world.gateway.answer = lambda *_: threads.add(threading.current_thread())
        frames = [str(number) for number in range(10)]

        assert world.connections.post("a", frames) is Delivery.DELIVERED
        assert [frame for _, frame in world.gateway.posted] == frames
        assert threads == {threading.current_thread()}, "one after another"

    def test_of_many_only_neighbours_swap_places(self, world: World) -> None:
        frames = [str(number) for number in range(100)]

        world.connections.post("a", frames)

        places = [int(frame) for _, frame in world.gateway.posted]
        assert all(abs(place - number) < 16 for number, place in enumerate(places))

    def test_all_have_been_taken_when_it_returns(self, world: World) -> None:
        """EOSE comes after it, and must be the last."""
        others = threading.Semaphore(0)

        def first_is_the_last(_: str, frame: str) -> None:
            if frame == "0":
                assert all(others.acquire(timeout=10) for _ in range(15))
            else:
                others.release()

        world.gateway.answer = first_is_the_last
        world.connections.post("a", [str(number) for number in range(40)])
        assert len(world.gateway.posted) == 40
        assert world.gateway.posted.index(("a", "0")) == 15

    @pytest.mark.parametrize("error", [GONE, failure("", 410)])
    def test_a_client_that_is_gone_is_tried_once(self, world: World, error: Exception) -> None:
        world.gateway.answer = lambda *_: error

        assert world.connections.post("a", ["1"]) is Delivery.GONE
        assert len(world.gateway.attempts) == 1
        assert world.waits == []

    def test_no_more_is_sent_to_one_that_is_gone(self, world: World) -> None:
        world.gateway.answer = lambda *_: GONE

        assert world.connections.post("a", [str(n) for n in range(100)]) is Delivery.GONE
        assert len(world.gateway.attempts) <= 16

    @pytest.mark.parametrize("error", [LARGE, failure("", 413)])
    def test_too_large_by_the_gateways_word(self, world: World, error: Exception) -> None:
        world.gateway.answer = lambda _, frame: error if frame == "2" else None

        assert world.connections.post("a", ["1", "2", "3"]) is Delivery.TOO_LARGE
        assert sorted(world.gateway.posted) == [("a", "1"), ("a", "3")]

    @pytest.mark.parametrize(
        ("frame", "delivery"),
        [
            ("x" * 131072, Delivery.DELIVERED),
            ("x" * 131073, Delivery.TOO_LARGE),
            ("é" * 65537, Delivery.TOO_LARGE),
        ],
    )
    def test_too_large_to_be_tried(self, world: World, frame: str, delivery: Delivery) -> None:
        assert world.connections.post("a", [frame]) is delivery
        assert len(world.gateway.attempts) == (delivery is Delivery.DELIVERED)

    @pytest.mark.parametrize("error", REFUSED)
    def test_a_refusal_is_not_repeated_and_not_held_against_the_client(
        self, world: World, error: Exception
    ) -> None:
        world.gateway.answer = lambda *_: error

        assert world.connections.post("a", ["1"]) is Delivery.BUSY
        assert len(world.gateway.attempts) == 1

    def test_the_worst_is_reported(self, world: World) -> None:
        errors = {"1": LARGE, "2": SLOW, "3": GONE}
        world.gateway.answer = lambda _, frame: errors.get(frame)
        many = ["0"] * 11  # so that they go side by side

        assert world.connections.post("a", [*many, "1"]) is Delivery.TOO_LARGE
        assert world.connections.post("a", [*many, "1", "2"]) is Delivery.BUSY
        assert world.connections.post("a", [*many, "1", "2", "3"]) is Delivery.GONE


class TestThrottling:
    @pytest.mark.parametrize("error", [*THROTTLED, *BROKEN, ConnectionError("no answer")])
    def test_is_waited_out_longer_each_time_with_jitter(
        self, world: World, error: Exception
    ) -> None:
        world.gateway.answer = lambda *_: error

        assert world.connections.post("a", ["1"]) is Delivery.BUSY
        assert world.waits[:4] == pytest.approx([0.025, 0.05, 0.1, 0.2])  # half, by the jitter
        assert sum(world.waits) < 10, "the function has 29 seconds"

    @pytest.mark.parametrize("error", [*THROTTLED, *BROKEN])
    def test_a_throttled_post_is_repeated_until_it_succeeds(
        self, world: World, error: Exception
    ) -> None:
        world.gateway.answer = lambda *_: error if len(world.gateway.attempts) < 5 else None

        assert world.connections.post("a", ["1"]) is Delivery.DELIVERED
        assert world.gateway.posted == [("a", "1")]
        assert len(world.waits) == 4

    @pytest.mark.parametrize("error", THROTTLED)
    def test_a_throttled_client_is_busy_and_not_disconnected(
        self, world: World, error: Exception
    ) -> None:
        """A reconnect storm on top of a throttled API would keep it throttled."""
        world.gateway.answer = lambda client, _: error if client != "well" else None

        troubles = world.connections.post_each([(client, "x") for client in ("well", "a", "b")])

        assert troubles == {"a": Delivery.BUSY, "b": Delivery.BUSY}

    def test_of_all_takes_no_longer_than_of_one(self, world: World) -> None:
        world.gateway.answer = lambda *_: THROTTLED[0]

        troubles = world.connections.post_each([(str(number), "x") for number in range(500)])

        assert set(troubles.values()) == {Delivery.BUSY}
        assert sum(world.waits) < 16 * 10, "16 side by side share one patience"


class TestTroubleOfOne:
    @pytest.mark.parametrize("error", [*BROKEN, *REFUSED])
    def test_is_closed_where_others_succeed(self, world: World, error: Exception) -> None:
        world.gateway.answer = lambda client, _: error if client == "ill" else None

        troubles = world.connections.post_each([("ill", "x"), ("well", "x")])

        assert troubles == {"ill": Delivery.SLOW}
        assert world.gateway.posted == [("well", "x")]

    @pytest.mark.parametrize("error", [*BROKEN, *REFUSED])
    def test_is_nobodys_where_all_fail(self, world: World, error: Exception) -> None:
        world.gateway.answer = lambda *_: error

        troubles = world.connections.post_each([("a", "x"), ("b", "x")])

        assert troubles == {"a": Delivery.BUSY, "b": Delivery.BUSY}


def wait_for_others(number: int) -> Callable[[str, str], None]:
    """Nobody is answered before all are there: fails if posts come one after another."""
    barrier = threading.Barrier(number, timeout=10)

    def answer(*_: str) -> None:
        barrier.wait()

    return answer


class TestPostEach:
    def test_each_client_gets_its_frames_in_order(self, world: World) -> None:
        frames = [(f"c{number % 7}", f"{number:03}") for number in range(140)]

        assert world.connections.post_each(frames) == {}

        for client in {client for client, _ in frames}:
            sent = [frame for to, frame in world.gateway.posted if to == client]
            assert sent == [frame for to, frame in frames if to == client]

    def test_trouble_of_one_is_not_that_of_another(self, world: World) -> None:
        errors = {"gone": GONE, "slow": SLOW, "large": LARGE}
        world.gateway.answer = lambda client, _: errors.get(client)

        troubles = world.connections.post_each(
            [(client, str(n)) for n in range(3) for client in ("well", *errors)]
        )

        assert troubles == {
            "gone": Delivery.GONE,
            "slow": Delivery.BUSY,
            "large": Delivery.TOO_LARGE,
        }
        assert world.gateway.posted == [("well", str(n)) for n in range(3)]
        attempts = [client for client, _ in world.gateway.attempts]
        assert attempts.count("gone") == 1  # no more to one that is gone
        assert attempts.count("large") == 3  # the others may be smaller

    def test_side_by_side_to_several(self, world: World) -> None:
        world.gateway.answer = wait_for_others(8)

        assert world.connections.post_each([(str(n), "x") for n in range(8)]) == {}

    def test_side_by_side_to_one(self, world: World) -> None:
        world.gateway.answer = wait_for_others(16)

        assert world.connections.post("a", [str(n) for n in range(16)]) is Delivery.DELIVERED

    def test_posting_to_nobody_has_no_troubles(self, world: World) -> None:
        assert world.connections.post_each([]) == {}


class TestClose:
    def test_close_deletes_the_connection(self, world: World) -> None:
        world.connections.close("a")

        assert world.gateway.deleted == ["a"]

    @pytest.mark.parametrize("error", [GONE, *THROTTLED, *BROKEN, *REFUSED])
    def test_one_that_cannot_be_closed_is_left(self, world: World, error: Exception) -> None:
        world.gateway.answer = lambda *_: error

        world.connections.close("a")
