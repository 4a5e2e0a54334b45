"""Paying for somebody else's event, by a quote from the relay."""

from datetime import UTC, datetime
from typing import Any

import pytest

from farthing.connector.client import NotPayable, prepare_quoted, quote_from_answer
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import sign_event

NOW = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
EVENT = sign_event(bytes([2] * 32), kind=1, content="gm", created_at=1_700_000_000, tags=[])


def answer(**changes: Any) -> dict[str, Any]:
    given = {
        "event_id": EVENT.id,
        "price": "3270",
        "destination": "g.agent.relay",
        "endpoint": "https://relay.example/ilp",
        "condition": "ab" * 32,
    }
    return {name: value for name, value in {**given, **changes}.items() if value is not None}


def test_the_packet_pays_what_was_quoted_under_the_relays_condition() -> None:
    payment = prepare_quoted(EVENT, quote_from_answer(answer()), NOW)

    assert payment.amount == 3270
    assert payment.prepare.condition == bytes.fromhex("ab" * 32)
    assert payment.prepare.destination == "g.agent.relay"
    assert payment.prepare.data == dumps_event(EVENT)
    assert payment.prepare.expires_at > NOW
    assert payment.fulfillment is None  # which only the relay can know


def test_a_quote_for_another_event_is_not_paid() -> None:
    with pytest.raises(NotPayable):
        prepare_quoted(EVENT, quote_from_answer(answer(event_id="a" * 64)), NOW)


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in answer()),
        {"price": 3270},
        {"price": "-1"},
        {"price": "1.5"},
        {"price": "٣"},
        {"destination": "nowhere"},
        {"destination": 7},
        {"endpoint": "ftp://relay.example"},
        {"endpoint": 7},
        {"condition": "ab" * 31},
        {"condition": "zz" * 32},
        {"condition": 7},
    ],
    ids=str,
)
def test_a_wrong_quote_is_not_payable(changes: dict[str, Any]) -> None:
    with pytest.raises(NotPayable):
        quote_from_answer(answer(**changes))
