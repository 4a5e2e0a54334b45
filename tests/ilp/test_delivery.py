"""What a payment buys: stored once, paid once, and nothing for what is not stored."""

from dataclasses import replace
from typing import Any

import pytest

from farthing.agent.audit import audit
from farthing.connector import delivery
from farthing.connector.quotes import quote_event
from farthing.context import Agent
from farthing.ilp.condition import condition_of, interop_fulfillments, quote_fulfillment
from farthing.ilp.packet import Fulfill
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import Event
from farthing.store.ledger import Balance, Peer
from farthing.store.receipts import Stored
from farthing.store.settlements import Settlement
from farthing.store.table import Table
from tests.ilp.paying import (
    PAYER,
    Dump,
    assert_fulfilled,
    code_of,
    dump,
    expiry,
    note,
    packet,
    pay,
    posted,
    price_of,
    send,
)
from tests.relay.world import BOB, OWNER, START, Client, connections_of, counts_of, signed

OTHER = Peer("other", "0" * 64)


def is_stored(agent: Agent, event: Event) -> bool:
    return agent.events.get(event.id) is not None


def without_postings(agent: Agent) -> Dump:
    """A repeated deletion writes its postings once more, with a later date."""
    return {key: item for key, item in dump(agent.engine).items() if key[0] != Table.POSTINGS}


def check_books(agent: Agent) -> None:
    assert audit(agent).differences == []


# Paid once


def test_paid_at_its_price_an_event_is_stored_and_receipted(either: Agent) -> None:
    event = note(tags=[["t", "x"]])
    prepare = packet(either, event)
    assert_fulfilled(send(either, prepare), prepare)
    assert is_stored(either, event)
    (receipt,) = either.ledger.receipts(PAYER.id)
    price = price_of(either, event)
    assert (receipt.amount, receipt.price) == (price, price)
    assert receipt.purpose == Stored(event.id, 1, len(prepare.data))
    assert (receipt.condition, receipt.scheme, receipt.time) == (
        prepare.condition.hex(),
        "author",
        START,
    )
    assert posted(either) == price
    check_books(either)


def test_a_repeat_is_fulfilled_again_and_moves_nothing(either: Agent) -> None:
    prepare = packet(either, note())
    first = send(either, prepare)
    after = dump(either.engine)
    assert send(either, prepare) == first
    assert dump(either.engine) == after


@pytest.mark.parametrize("kind", [1, 0, 5, 30023, 20001])
def test_another_amount_is_another_payment_and_is_not_taken(either: Agent, kind: int) -> None:
    """Connectors on the way would charge for it what we never book."""
    prepare = packet(either, signed(kind=kind))
    first = send(either, prepare)
    after = dump(either.engine)

    assert code_of(send(either, replace(prepare, amount=prepare.amount + 1))) == "F99"
    assert code_of(send(either, replace(prepare, amount=prepare.amount - 1))) == "F04"
    assert code_of(send(either, replace(prepare, amount=0))) == "F04"

    assert send(either, prepare) == first
    assert dump(either.engine) == after


def test_what_was_free_is_not_paid_later(agent_with: Any) -> None:
    agent = agent_with(price_per_byte=0)
    free = packet(agent, note(), amount=0)
    first = send(agent, free)
    assert_fulfilled(first, free)

    assert code_of(send(agent, replace(free, amount=5))) == "F99"
    assert send(agent, free) == first


@pytest.mark.parametrize("kind", [1, 0, 5, 30023, 20001])
@pytest.mark.parametrize("change", ["expired", "dearer", "blocked", "too old"])
def test_a_repeat_is_fulfilled_again_whatever_has_changed_since(
    agent_with: Any, clock: Any, kind: int, change: str
) -> None:
    ends = [["expiration", str(START + 60)]] if change == "expired" else []
    event = signed(kind=kind, tags=ends)
    agent = agent_with()
    prepare = packet(agent, event, expires_at=expiry(agent, 3600))
    first = send(agent, prepare)
    assert_fulfilled(first, prepare)
    clock.now += 600
    after = without_postings(agent)
    now = agent_with(
        **{
            "expired": {},
            "dearer": {"price_per_byte": 1000},
            "blocked": {"blocked_pubkeys": frozenset({event.pubkey})},
            "too old": {"created_at_past": 60},
        }[change]
    )

    assert send(now, prepare) == first

    assert without_postings(now) == after
    # It is the payment that is known, not the event: nobody else has paid for it.
    now.ledger.add_peer(OTHER)
    assert code_of(send(now, prepare, OTHER)) in ("F99", "F04")
    other = condition_of(quote_fulfillment(OWNER, bytes.fromhex(event.id)))
    assert code_of(send(now, replace(prepare, condition=other))) in ("F99", "F04")


def test_overpayment_is_kept_and_recorded(either: Agent) -> None:
    event = note()
    price = price_of(either, event)
    assert isinstance(pay(either, event, amount=price + 777), Fulfill)
    (receipt,) = either.ledger.receipts(PAYER.id)
    assert (receipt.amount, receipt.price) == (price + 777, price)
    assert posted(either) == price + 777
    assert counts_of(either)["Revenue"] == price + 777  # type: ignore[index]
    check_books(either)


# Not charged


def test_an_event_that_another_has_paid_for(either: Agent) -> None:
    either.ledger.add_peer(OTHER)
    event = note()
    assert isinstance(pay(either, event), Fulfill)
    before = dump(either.engine)
    assert code_of(pay(either, event, OTHER)) == "F99"
    assert dump(either.engine) == before
    # Nor by the same peer under another condition: that is another payment.
    again = condition_of(quote_fulfillment(OWNER, bytes.fromhex(event.id)))
    assert code_of(pay(either, event, condition=again)) == "F99"
    assert dump(either.engine) == before
    check_books(either)


def test_an_event_that_is_stored_for_free(agent: Agent) -> None:
    event = signed(OWNER, content="mine")
    Client(agent).publish(event)
    before = dump(agent.engine)
    assert code_of(pay(agent, event, secret=OWNER)) == "F99"
    assert dump(agent.engine) == before


def test_an_older_version_and_the_same_one(either: Agent) -> None:
    newer, older = signed(kind=0, created_at=START), signed(kind=0, created_at=START - 1)
    assert isinstance(pay(either, newer), Fulfill)
    before = dump(either.engine)
    assert code_of(pay(either, older)) == "F99"
    assert dump(either.engine) == before
    next_one = signed(kind=0, created_at=START + 1)
    assert isinstance(pay(either, next_one), Fulfill)
    assert not is_stored(either, newer)
    assert posted(either) == price_of(either, newer) + price_of(either, next_one)
    check_books(either)


def test_an_event_that_its_author_has_deleted(either: Agent) -> None:
    event = note()
    deletion = signed(kind=5, tags=[["e", event.id]])
    assert isinstance(pay(either, event), Fulfill)
    assert isinstance(pay(either, deletion), Fulfill)
    assert not is_stored(either, event)
    before = dump(either.engine)
    other = quote_fulfillment(OWNER, bytes.fromhex(event.id))
    assert code_of(pay(either, event, condition=condition_of(other))) == "F99"
    assert dump(either.engine) == before
    check_books(either)


def test_the_balance_limit_leaves_nothing_behind(agent_with: Any) -> None:
    event = note()
    price = price_of(agent_with(), event)
    agent = agent_with(max_balance=price - 1)
    before = dump(agent.engine)
    assert code_of(pay(agent, event)) == "T04"
    assert dump(agent.engine) == before
    assert isinstance(pay(agent_with(max_balance=price), event), Fulfill)


def test_a_peers_own_limit_comes_first(agent: Agent) -> None:
    event = note()
    poor = Peer("poor", "1" * 64, max_balance=price_of(agent, event) - 1)
    rich = Peer("rich", "2" * 64, max_balance=price_of(agent, event))
    agent.ledger.add_peer(poor)
    agent.ledger.add_peer(rich)
    assert code_of(pay(agent, event, poor)) == "T04"
    assert isinstance(pay(agent, event, rich), Fulfill)


def test_zero_amounts_do_not_touch_the_balance(agent_with: Any) -> None:
    """Not even where there is no more room in it."""
    event = note()
    assert isinstance(pay(agent_with(), event), Fulfill)
    full = agent_with(max_balance=1, free_pubkeys=frozenset({event.pubkey}))
    before = full.ledger.balance(PAYER.id)
    assert isinstance(pay(full, note("free"), amount=0), Fulfill)
    assert code_of(pay(full, note("tipped"), amount=1)) == "T04"
    assert full.ledger.balance(PAYER.id) == before
    assert len(list(full.ledger.receipts(PAYER.id))) == 1, "an amount of 0 leaves no receipt"
    check_books(full)


@pytest.mark.parametrize("kind", [1, 0, 5, 30023])
def test_a_free_event_is_stored_once_and_fulfilled_again(agent_with: Any, kind: int) -> None:
    event = signed(kind=kind)
    free = agent_with(free_pubkeys=frozenset({event.pubkey}))
    free.ledger.add_peer(OTHER)
    prepare = packet(free, event, amount=0)
    assert_fulfilled(send(free, prepare), prepare)
    after = without_postings(free)
    assert_fulfilled(send(free, prepare), prepare)
    assert without_postings(free) == after
    assert code_of(send(free, prepare, OTHER)) == "F99"
    assert list(free.ledger.receipts(PAYER.id)) == []
    check_books(free)
    # Once it would cost something, it counts as unpaid, as an event does that came by WebSocket.
    assert len(audit(agent_with()).differences) == 1


@pytest.mark.parametrize("limit", [0, 1])
def test_a_peer_that_pays_in_advance_spends_what_it_has_paid(either: Agent, limit: int) -> None:
    prepaid = Peer("prepaid", "3" * 64, max_balance=limit)
    either.ledger.add_peer(prepaid)
    first, second, third = (note(text) for text in ("one", "two", "three"))
    assert code_of(pay(either, first, prepaid)) == "T04"
    price = price_of(either, first)
    either.settlements.receive(Settlement("prepaid", "key", 2 * price, True, START))
    assert isinstance(pay(either, first, prepaid), Fulfill)
    assert isinstance(pay(either, second, prepaid), Fulfill)
    assert posted(either, prepaid) == 0
    assert code_of(pay(either, third, prepaid)) == "T04"
    check_books(either)


def test_without_a_limit_of_its_own_a_peer_has_that_of_the_settings(agent_with: Any) -> None:
    assert code_of(pay(agent_with(max_balance=0), note())) == "T04"
    assert agent_with().settings.max_balance == 10**9
    assert isinstance(pay(agent_with(), note()), Fulfill)


# Kinds with a life of their own


def test_an_ephemeral_event_is_paid_for_and_goes_out_once(either: Agent) -> None:
    listener = Client(either, "listener")
    listener.send("REQ", "live", {"kinds": [20001]})
    event = signed(kind=20001)
    prepare = packet(either, event)
    assert_fulfilled(send(either, prepare), prepare)
    ((_, _, delivered),) = connections_of(either).take("listener")
    assert delivered["id"] == event.id
    assert not is_stored(either, event)
    assert posted(either) == prepare.amount
    assert_fulfilled(send(either, prepare), prepare)  # nor is it delivered for free again
    assert connections_of(either).take("listener") == []
    assert posted(either) == prepare.amount
    check_books(either)


def test_an_ephemeral_event_that_cannot_go_out_is_paid_all_the_same(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    Client(agent, "listener").send("REQ", "live", {"kinds": [20001]})
    connections_of(agent).error = RuntimeError("no way out")
    prepare = packet(agent, signed(kind=20001))
    assert_fulfilled(send(agent, prepare), prepare)
    assert posted(agent) == prepare.amount
    assert "no way out" in caplog.text


def test_a_stored_event_with_an_end_leaves_its_receipt(either: Agent, clock: Any) -> None:
    event = note(tags=[["expiration", str(START + 60)]])
    assert isinstance(pay(either, event), Fulfill)
    clock.now += 61
    assert not is_stored(either, event)
    check_books(either)


# Conditions


def test_a_payer_who_is_not_the_author_pays_by_quote(agent: Agent) -> None:
    event = note()
    quote = quote_event(agent, event)
    condition = bytes.fromhex(quote["condition"])
    prepare = packet(agent, event, condition=condition, amount=int(quote["price"]))
    assert_fulfilled(send(agent, prepare), prepare)
    (receipt,) = agent.ledger.receipts(PAYER.id)
    assert receipt.scheme == "quote"


@pytest.mark.parametrize("which", [0, 1])
def test_deployed_payers_pay_by_what_the_packet_shows(agent: Agent, which: int) -> None:
    event = note()
    data = dumps_event(event)
    fulfillment = interop_fulfillments(event.id, data)[which]
    prepare = packet(agent, event, data=data, condition=condition_of(fulfillment))
    assert send(agent, prepare) == Fulfill(fulfillment)
    (receipt,) = agent.ledger.receipts(PAYER.id)
    assert receipt.scheme == "interop"


def test_anothers_quote_is_a_wrong_condition(agent: Agent) -> None:
    other = bytes.fromhex(quote_event(agent, note("other"))["condition"])
    assert code_of(pay(agent, note(), condition=other)) == "F05"
    assert code_of(pay(agent, note(), secret=BOB)) == "F05"


# Overtaken on the way


@pytest.mark.parametrize("kind", [1, 0, 30023, 20001, 5])
def test_a_repeat_that_overtakes_is_the_same_payment(
    either: Agent, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """Between the look at the ledger and the commit, the same packet goes through."""
    prepare = packet(either, signed(kind=kind))
    commit = delivery._commit

    def overtaken(*arguments: Any) -> None:
        monkeypatch.setattr(delivery, "_commit", commit)
        assert_fulfilled(send(either, prepare), prepare)
        commit(*arguments)

    monkeypatch.setattr(delivery, "_commit", overtaken)
    assert_fulfilled(send(either, prepare), prepare)
    assert posted(either) == prepare.amount
    assert len(list(either.ledger.receipts(PAYER.id))) == 1
    check_books(either)


def test_a_repeat_that_overtakes_between_two_looks(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receipt is not there yet, the event already is."""
    prepare = packet(agent, note())
    look = agent.ledger.receipt

    def overtaken(*arguments: Any) -> Any:
        seen = look(*arguments)
        monkeypatch.setattr(agent.ledger, "receipt", look)
        assert_fulfilled(send(agent, prepare), prepare)
        return seen

    monkeypatch.setattr(agent.ledger, "receipt", overtaken)
    assert_fulfilled(send(agent, prepare), prepare)
    assert posted(agent) == prepare.amount


def test_a_packet_that_expires_on_the_way_is_not_stored(
    agent: Agent, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = agent.ledger.balance

    def slow(peer_id: str) -> Balance:
        clock.now += 31
        return look(peer_id)

    monkeypatch.setattr(agent.ledger, "balance", slow)
    before = dump(agent.engine)
    assert code_of(pay(agent, note())) == "R00"
    assert dump(agent.engine) == before
