"""EVENT: always answered by OK, and stored only if that says so."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.ports.meter import Metric
from farthing.relay.information import relay_information
from tests.relay.world import ALICE, BOB, OWNER, START, Client, connections_of, counts_of, signed

AgentWith = Callable[..., Agent]


class TestAccepted:
    @pytest.mark.parametrize("kind", [0, 1, 4, 10002, 30023, 65535])
    def test_an_accepted_event_is_stored(self, client: Client, kind: int) -> None:
        event = signed(kind=kind)

        assert client.publish(event) == ["OK", event.id, True, ""]
        assert client.agent.events.get(event.id).json == event.to_json()

    def test_twice_is_a_duplicate(self, client: Client) -> None:
        event = signed()
        client.publish(event)

        assert client.publish(event) == [
            "OK", event.id, True, "duplicate: already have this event"
        ]  # fmt: skip

    def test_stored_and_refused_events_are_counted(self, client: Client) -> None:
        client.publish(signed())
        client.publish(signed())
        client.publish(replace(signed(), content="altered"))

        assert counts_of(client.agent) == {Metric.EVENTS_STORED: 1, Metric.EVENTS_REFUSED: 1}

    def test_a_key_has_vanished_by_the_time_of_the_ok(self, client: Client) -> None:
        client.publish(signed(content="before"))
        wrap = signed(BOB, kind=1059, tags=[["p", public_key_of(ALICE)]])
        client.publish(wrap)
        vanish = signed(kind=62, tags=[["relay", "ALL_RELAYS"]], created_at=START + 1)

        assert client.publish(vanish)[2]

        assert client.ids({"authors": [public_key_of(ALICE)]}) == [vanish.id]
        assert client.agent.events.get(wrap.id) is None

    def test_fields_beyond_nip_01_are_not_kept(self, client: Client) -> None:
        event = signed()

        client.send("EVENT", {**event.as_dict(), "seen_on": "elsewhere"})

        assert client.agent.events.get(event.id).event == event

    def test_everything_in_it_survives(self, client: Client) -> None:
        event = signed(content='\x00\x1f"\\/\u2028😀\x7f', tags=[["t", "\t\n"], [], [""]])

        client.publish(event)

        ((_, _, sent), _) = client.send("REQ", "x", {"#t": ["\t\n"]})
        assert sent == {**event.as_dict(), "tags": [list(tag) for tag in event.tags]}


class TestRefused:
    @pytest.mark.parametrize(
        ("spoil", "reason"),
        [
            ({"content": "altered"}, "invalid: id does not match the event"),
            ({"sig": "0" * 128}, "invalid: signature does not match"),
            ({"created_at": "now"}, "invalid: created_at is not an integer"),
            ({"tags": None}, "invalid: tags is not an array"),
        ],
    )
    def test_an_invalid_event_is_refused_with_the_reason(
        self, client: Client, spoil, reason: str
    ) -> None:
        event = signed()

        answer = client.send("EVENT", {**event.as_dict(), **spoil})

        assert answer == [["OK", event.id, False, reason]]
        assert client.ids({}) == []

    def test_an_older_version_is_refused_as_a_duplicate(self, client: Client) -> None:
        client.publish(signed(kind=0, created_at=START))
        older = signed(kind=0, created_at=START - 1)

        assert client.publish(older) == [
            "OK", older.id, False, "duplicate: a newer version is stored"
        ]  # fmt: skip

    @pytest.mark.parametrize("kind", [1, 0, 30023])
    def test_an_event_that_its_author_has_deleted_is_blocked(
        self, client: Client, kind: int
    ) -> None:
        event = signed(kind=kind)
        client.publish(event)
        client.publish(signed(kind=5, tags=[["e", event.id]]))

        assert client.publish(event) == [
            "OK", event.id, False, "blocked: its author has deleted this event"
        ]  # fmt: skip


class TestPrice:
    @pytest.fixture
    def client(self, agent_with: AgentWith) -> Client:
        carol = public_key_of(BOB)
        return Client(
            agent_with(price_per_byte=10, free_pubkeys=frozenset([carol]), ilp_address="g.me")
        )

    def test_a_stranger_is_told_the_price_and_where_to_pay(self, client: Client) -> None:
        _, _, accepted, reason = client.publish(signed(ALICE))

        assert not accepted
        assert reason.startswith("restricted: ")
        assert f"fill your purse at {client.agent.settings.http_url}/purse/npub1" in reason
        assert client.ids({}) == []

    @pytest.mark.parametrize("secret", [OWNER, BOB])
    def test_the_owner_and_the_allow_listed_write_for_free(self, client, secret: bytes) -> None:
        assert client.publish(signed(secret))[2] is True

    def test_ephemeral_events_are_no_way_around_it(self, client: Client) -> None:
        assert client.publish(signed(ALICE, kind=20000))[2] is False

    def test_reading_is_free(self, client: Client) -> None:
        event = signed(OWNER)
        client.publish(event)

        assert client.ids({}) == [event.id]

    def test_the_information_document_says_so(self, client: Client) -> None:
        assert relay_information(client.agent.settings)["limitation"]["payment_required"] is True


class TestEphemeral:
    def test_is_delivered_and_not_stored(self, agent: Agent) -> None:
        writer, reader = Client(agent, "writer"), Client(agent, "reader")
        reader.send("REQ", "live", {"kinds": [20001]})
        event = signed(kind=20001)

        assert writer.publish(event) == ["OK", event.id, True, ""]

        ((kind, id, sent),) = connections_of(agent).take("reader")
        assert (kind, id, sent["id"]) == ("EVENT", "live", event.id)
        assert agent.events.get(event.id) is None
        assert writer.ids({"kinds": [20001]}) == []


class TestProtected:
    """NIP-70: an event with a `-` tag comes from its author alone."""

    EVENT = signed(ALICE, tags=[["-"]])

    def reason(self, client: Client) -> str:
        _, id, accepted, reason = client.publish(self.EVENT)
        assert (id, accepted) == (self.EVENT.id, False)
        return reason

    def test_not_from_someone_unknown(self, client: Client) -> None:
        assert self.reason(client).startswith("auth-required: ")

    def test_not_from_someone_else(self, client: Client) -> None:
        client.authenticate(BOB)

        assert self.reason(client).startswith("auth-required: ")

    def test_its_author_may_publish_a_protected_event(self, client: Client) -> None:
        client.authenticate(ALICE)

        assert client.publish(self.EVENT)[2] is True

    def test_an_ephemeral_event_is_protected_too(self, client: Client) -> None:
        assert client.publish(signed(kind=20000, tags=[["-"]]))[2] is False


def test_a_newer_version_of_a_deleted_address_is_welcome(client: Client) -> None:
    def version(number: int) -> Event:
        return signed(kind=30023, tags=[["d", "x"]], created_at=START - 100 + number)

    author = public_key_of(ALICE)
    client.publish(version(1))
    removal = signed(kind=5, tags=[["a", f"30023:{author}:x"]], created_at=START - 98)
    client.publish(removal)

    assert [client.publish(version(number))[2] for number in (1, 2, 3)] == [False, False, True]
    assert client.ids({"kinds": [30023]}) == [version(3).id]
