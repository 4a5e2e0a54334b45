"""Paid subscriptions in the ledger: the account, the terms and the backlog of each.

The account is one small item. Whoever plans a change from an account that it has read writes the
change under the version that it has read, so no two plans meet. A delivery under way holds a lease
instead: its commit asks only whether it still is the holder, so a top-up does not disturb it. An
end, other filters or a pull take the lease away, and the late commit of its holder fails.

What leads to a subscription is a hint and is checked against the account: rows by due time, rows by
owner. The numbers of subscriptions that have ended are added up under their owner, so that the
books can be audited when the records are gone.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import orjson

from farthing.btp_nips.account import Account
from farthing.btp_nips.fees import Terms
from farthing.btp_nips.identity import Owner
from farthing.btp_nips.lifecycle import REPLAY_SECONDS, Current, Ending, State
from farthing.btp_nips.messages import Delivery, Model
from farthing.btp_nips.positions import Position
from farthing.btp_nips.tokens import GRACE_SECONDS
from farthing.nostr.filters import Filter, parse_filter
from farthing.store.spaces import NOSTR
from farthing.store.subscription_index import Index
from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    Condition,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Item,
    Key,
    LessThan,
    Put,
    Query,
    Table,
    TransactWrite,
    is_expired,
    read_all,
)

# Leads from a new event to the subscriptions that are to be woken for it. Only those by push have
# hints: a subscriber that pulls asks by itself.
PAID_INDEX: Final = Index(Table.LEDGER, "paid-wanted", NOSTR, listed=True)

_ACCOUNT = "account"
_TERMS = "terms"
_BACKLOG = "backlog"
_TOTALS = "totals"
_ROW = "id#"
_MESSAGE = "message"
_PROOF = "proof"
_ORIGIN = "origin"
_REFUSED = "refused"
_SHARDS: Final = 8
_PROOF_SECONDS: Final = 24 * 3600
_REFUSED_SECONDS: Final = 60
# Records that go by themselves stay a little longer than they are needed.
_MARGIN_SECONDS: Final = 3600
_TEXT_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class Agreed:
    """What changes only with a REQ. It stands in an item of its own, so that a delivery writes
    little."""

    terms: Terms
    filters: tuple[Filter, ...]
    delivery: Delivery
    peer: str  # whose packets the subscription came with
    reply_to: str = ""
    window: int = 1
    hops: int = 0  # how far it is passed on to other relays
    path: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What went wrong with deliveries since the last one that was fulfilled."""

    failures: int = 0  # in a row
    since: int = 0  # second of the first of them
    refusals: int = 0  # F02, F06 or F07 in a row
    attempts: int = 0  # final rejects of the event that comes next


@dataclass(frozen=True, slots=True)
class PaidSubscription:
    owner: Owner
    id: str
    agreed: Agreed
    account: Account
    state: State
    began: int
    expires_at: int
    last_timestamp: int
    since: int  # the change number at which it began: EOSE stands there
    stored: int  # events in its backlog
    floor: Position  # behind which its own positions begin
    version: int = 0
    generation: int = 0  # changes with the filters: what leads to others is out of date
    credited: int = 0  # of what was paid, what became credit or budget
    refilled: int = 0  # drawn from the owner's purse
    budget: int = 0  # for other relays, not spent yet
    is_spread: bool = False  # passed on to other relays, as far as it is
    is_low: bool = False  # the owner was told that little credit is left
    trouble: Trouble = Trouble()
    ending: str = ""
    returned: int = 0  # went back to the owner at the end
    is_told: bool = False  # CLOSED has arrived
    gone_at: int = 0  # when the record of an ended one goes
    lease_ms: int = 0  # until when somebody delivers to it; 0 if nobody does

    @property
    def place(self) -> str:
        """Names the subscription in hints, for as long as its filters stay."""
        return f"{self.generation}#{self.owner}#{self.id}"

    @property
    def filters(self) -> tuple[Filter, ...]:
        return self.agreed.filters

    @property
    def terms(self) -> Terms:
        return self.agreed.terms

    @property
    def current(self) -> Current:
        return Current(self.filters, self.state, self.expires_at, self.last_timestamp)

    @property
    def is_push(self) -> bool:
        return self.agreed.delivery is Delivery.PUSH

    def may_deliver(self, now: int) -> bool:
        return self.current.may_deliver(now)

    def ended(self, ending: Ending, now: int) -> "PaidSubscription":
        """After its end. What it had left is `returned`, and whoever plans the end moves it."""
        left = self.account.credit + self.budget
        return replace(
            self,
            account=replace(self.account, credit=0),
            budget=0,
            state=ending.state,
            ending=ending.value,
            returned=left,
            gone_at=now + GRACE_SECONDS,
        )


class Standing(NamedTuple):
    """What stands under a subscription's key: an account whose time is over counts for nothing but
    for its version."""

    subscription: PaidSubscription | None
    version: int | None  # of the account's item; None where there is none


class Message(NamedTuple):
    """A message that had its effect."""

    peer: str
    owner: str  # for whom it spoke
    start: Position | None  # behind which its pull began


class Totals(NamedTuple):
    """An owner's subscriptions: how many are open, and the numbers of those that have ended."""

    open: int = 0
    credited: int = 0
    refilled: int = 0
    spent: int = 0
    returned: int = 0


class Due(NamedTuple):
    """A hint that something is to be done about a subscription."""

    owner: Owner
    id: str
    shard: int
    sk: str


class PaidSubscriptions:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Reading

    def standing(self, owner: Owner, subscription_id: str, now: int) -> Standing:
        pk = _pk(owner, subscription_id)
        keys = [(pk, _ACCOUNT), (pk, _TERMS)]
        found = self._engine.get_many(Table.LEDGER, keys)
        return _standing(owner, subscription_id, found.get(keys[0]), found.get(keys[1]), now)

    def get(self, owner: Owner, subscription_id: str, now: int) -> PaidSubscription | None:
        return self.standing(owner, subscription_id, now).subscription

    def get_many(
        self, keys: Iterable[tuple[Owner, str]], now: int
    ) -> dict[tuple[Owner, str], PaidSubscription]:
        wanted = list(dict.fromkeys(keys))
        items = self._engine.get_many(
            Table.LEDGER, [(_pk(*key), sk) for key in wanted for sk in (_ACCOUNT, _TERMS)]
        )
        found = {}
        for key in wanted:
            account, terms = items.get((_pk(*key), _ACCOUNT)), items.get((_pk(*key), _TERMS))
            subscription = _standing(*key, account, terms, now).subscription
            if subscription is not None:
                found[key] = subscription
        return found

    def backlog(self, subscription: PaidSubscription) -> bytes:
        """The ids of the stored events, see `btp_nips.positions`."""
        if not subscription.stored:
            return b""
        pk = _pk(subscription.owner, subscription.id)
        item = self._engine.get(Table.LEDGER, pk, _BACKLOG)
        return b"" if item is None else bytes(item["ids"])

    def message(self, digest: str) -> Message | None:
        """The message of this hash, if it had its effect."""
        item = self._engine.get(Table.LEDGER, *_message_key(digest))
        if item is None:
            return None
        start = item.get("start")
        position = None if start is None else Position.from_int(start)
        return Message(item["peer"], item["owner"], position)

    def owners(self) -> Iterator[Owner]:
        """All who have or had subscriptions."""
        for shard in range(_SHARDS):
            for row in read_all(self._engine, Query(Table.LEDGER, f"paid-owners#{shard}")):
                yield Owner(row.sk)

    def totals(self, owner: Owner) -> Totals:
        item = self._engine.get(Table.LEDGER, _of(owner), _TOTALS) or {}
        return Totals(
            item.get("n", 0),
            item.get("credited", 0),
            item.get("refilled", 0),
            item.get("spent", 0),
            item.get("returned", 0),
        )

    def of(self, owner: Owner, now: int) -> list[PaidSubscription]:
        """The subscriptions of an owner, open ones and those that ended a short while ago."""
        query = Query(Table.LEDGER, _of(owner), low=_ROW, high=f"{_ROW}\U0010ffff")
        ids = [row.sk.removeprefix(_ROW) for row in read_all(self._engine, query)]
        return list(self.get_many([(owner, each) for each in ids], now).values())

    def all(self, now: int) -> Iterator[PaidSubscription]:
        for owner in self.owners():
            yield from self.of(owner, now)

    # Writes for a transaction. The account's is always the first.

    def create(
        self,
        new: PaidSubscription,
        standing: Standing,
        backlog: bytes,
        *,
        most: int,
        most_of_peer: int,
    ) -> list[TransactWrite]:
        """Open a subscription, in the place of one that has ended. The second write fails where
        the owner has too many open, the third where the peer has."""
        pk = _pk(new.owner, new.id)
        version = standing.version
        unchanged: Condition = Absent() if version is None else Equals("v", version)
        writes: list[TransactWrite] = [
            Put(Table.LEDGER, pk, _ACCOUNT, _account_item(new, version or 0), unchanged),
            Add(Table.LEDGER, _of(new.owner), _TOTALS, {"n": 1}, condition=LessThan("n", most)),
            Add(Table.LEDGER, f"paid-peer#{new.agreed.peer}", "open", {"n": 1},
                condition=LessThan("n", most_of_peer)),
            self._terms(new),
            Put(Table.LEDGER, _of(new.owner), _ROW + new.id, {}),
            Put(Table.LEDGER, f"paid-owners#{_shard(new.owner)}", new.owner, {}),
            self.due(new, new.expires_at * 1000),
        ]  # fmt: skip
        return [*writes, *self._backlog(new, backlog)]

    def change(
        self,
        old: PaidSubscription,
        new: PaidSubscription,
        *,
        holder: str | None = None,
        lease_ms: int | None = 0,
    ) -> Add:
        """The write that makes one account of another: under the old one's version, or as the
        holder of the lease. `lease_ms` is until when the lease is held afterwards: 0 frees it, and
        None leaves it to its holder."""
        before, after = _numbers(old), _numbers(new)
        amounts = {name: after[name] - before[name] for name in after}
        amounts = {name: amount for name, amount in amounts.items() if amount}
        was, is_now = _assigned(old), _assigned(new)
        assign = {name: value for name, value in is_now.items() if value != was[name]}
        if lease_ms == 0:
            assign |= {"holder": "", "lease": 0}
        elif lease_ms is not None:
            assign["lease"] = lease_ms
        if new.gone_at:
            assign[EXPIRES] = new.gone_at
        condition = Equals("v", old.version) if holder is None else Equals("holder", holder)
        pk = _pk(old.owner, old.id)
        return Add(Table.LEDGER, pk, _ACCOUNT, {**amounts, "v": 1}, assign, condition)

    def agree(self, new: PaidSubscription, backlog: bytes | None = None) -> list[TransactWrite]:
        """Other terms, and with `backlog` other stored events."""
        return [self._terms(new), *(() if backlog is None else self._backlog(new, backlog))]

    def extend(self, new: PaidSubscription) -> list[TransactWrite]:
        """What goes with a later expiry."""
        pk, assign = _pk(new.owner, new.id), {EXPIRES: _gone_after(new)}
        writes: list[TransactWrite] = [self.due(new, new.expires_at * 1000)]
        if new.stored:
            writes.append(Add(Table.LEDGER, pk, _BACKLOG, {}, assign, Equals("count", new.stored)))
        return writes

    def end(self, ended: PaidSubscription, now: int) -> list[TransactWrite]:
        """What goes with an end, beside the account's own change and the money."""
        expires = now + GRACE_SECONDS
        totals = {
            "n": -1,
            "credited": ended.credited,
            "refilled": ended.refilled,
            "spent": ended.account.spent,
            "returned": ended.returned,
        }
        return [
            Add(Table.LEDGER, _of(ended.owner), _TOTALS, totals),
            Add(Table.LEDGER, f"paid-peer#{ended.agreed.peer}", "open", {"n": -1}),
            Put(Table.LEDGER, _of(ended.owner), _ROW + ended.id, {EXPIRES: expires}),
        ]

    def note(self, digest: str, peer: str, owner: Owner, start: Position | None, now: int) -> Put:
        """Know a message by its hash. Fails where it had its effect already."""
        item: dict[str, Any] = {"peer": peer, "owner": owner, EXPIRES: now + REPLAY_SECONDS + 1}
        if start is not None:
            item["start"] = start.to_int()
        return Put(Table.LEDGER, *_message_key(digest), item, Absent())

    def origin_of(self, origin: str) -> tuple[str, str] | None:
        """The (owner, id) that an origin is known by."""
        item = self._engine.get(Table.LEDGER, f"origin#{origin}", _ORIGIN)
        return None if item is None else (item["owner"], item["id"])

    def know_origin(self, subscription: PaidSubscription) -> Put:
        """Know the subscription when it comes here by another way."""
        item = {
            "owner": subscription.owner,
            "id": subscription.id,
            EXPIRES: _gone_after(subscription),
        }
        return Put(Table.LEDGER, f"origin#{subscription.agreed.origin}", _ORIGIN, item)

    def due(self, subscription: PaidSubscription, time_ms: int) -> Put:
        pk = f"due#{_shard(subscription.owner + subscription.id)}"
        sk = f"{time_ms:015d}#{subscription.owner}#{subscription.id}"
        return Put(Table.LEDGER, pk, sk, {})

    def _terms(self, new: PaidSubscription) -> Put:
        item = {**_terms_item(new.agreed), EXPIRES: _gone_after(new)}
        return Put(Table.LEDGER, _pk(new.owner, new.id), _TERMS, item)

    def _backlog(self, new: PaidSubscription, backlog: bytes) -> list[TransactWrite]:
        pk = _pk(new.owner, new.id)
        if not backlog:
            return [Delete(Table.LEDGER, pk, _BACKLOG)]
        item = {"ids": backlog, "count": new.stored, EXPIRES: _gone_after(new)}
        return [Put(Table.LEDGER, pk, _BACKLOG, item)]

    # Hints for fan-out

    def write_hints(self, subscription: PaidSubscription) -> None:
        """Before the subscription is open, so that no event is missed."""
        item = {EXPIRES: _gone_after(subscription)}
        self._engine.write_batch(
            [Put(Table.LEDGER, *key, item) for key in self._hints(subscription)]
        )

    def forget_hints(self, subscription: PaidSubscription) -> None:
        self._engine.write_batch([Delete(Table.LEDGER, *key) for key in self._hints(subscription)])

    def _hints(self, subscription: PaidSubscription) -> list[Key]:
        return PAID_INDEX.hints(subscription.filters, subscription.place)

    def open_at(self, places: Collection[str], now: int) -> dict[str, PaidSubscription]:
        """The subscriptions that hints name, as far as the hints still hold."""
        keys = {place: _named(place) for place in places}
        found = self.get_many(keys.values(), now)
        return {
            place: found[key]
            for place, key in keys.items()
            if key in found
            and found[key].place == place
            and found[key].is_push
            and not found[key].state.has_ended
        }

    # What is done on its own

    def take_lease(
        self, owner: Owner, subscription_id: str, holder: str, now_ms: int, until_ms: int
    ) -> PaidSubscription | None:
        """Become the one who delivers. None if another does, or nothing is there."""
        pk, assign = _pk(owner, subscription_id), {"lease": until_ms, "holder": holder}
        free = LessThan("lease", now_ms)
        try:
            item = self._engine.write(Add(Table.LEDGER, pk, _ACCOUNT, {}, assign, free))
        except ConditionFailed:
            return None
        assert item is not None
        if "v" not in item:  # there was nothing, and the write has made an item
            self._engine.write(Delete(Table.LEDGER, pk, _ACCOUNT, Equals("holder", holder)))
            return None
        terms = self._engine.get(Table.LEDGER, pk, _TERMS)
        return _standing(owner, subscription_id, item, terms, now_ms // 1000).subscription

    def commit(
        self,
        old: PaidSubscription,
        new: PaidSubscription,
        holder: str,
        lease_ms: int = 0,
    ) -> bool:
        """Write what the holder of the lease has done, and hold the lease for longer or free it.
        False if another has taken over, and then nothing is written."""
        try:
            self._engine.write(self.change(old, new, holder=holder, lease_ms=lease_ms))
        except ConditionFailed:
            return False
        return True

    def leave(self, owner: Owner, subscription_id: str, holder: str) -> None:
        """Free the lease without a change."""
        pk, assign = _pk(owner, subscription_id), {"lease": 0, "holder": ""}
        with suppress(ConditionFailed):  # another has taken over
            mine = Equals("holder", holder)
            self._engine.write(Add(Table.LEDGER, pk, _ACCOUNT, {}, assign, mine))

    def break_lease(self, subscription: PaidSubscription) -> None:
        """Free a lease whose holder is known to be dead."""
        pk = _pk(subscription.owner, subscription.id)
        assign, unchanged = {"lease": 0, "holder": ""}, Equals("v", subscription.version)
        with suppress(ConditionFailed):
            self._engine.write(Add(Table.LEDGER, pk, _ACCOUNT, {}, assign, unchanged))

    def wake_at(self, subscription: PaidSubscription, time_ms: int) -> None:
        self._engine.write(self.due(subscription, time_ms))

    def due_until(self, time_ms: int) -> Iterator[Due]:
        for shard in range(_SHARDS):
            query = Query(Table.LEDGER, f"due#{shard}", high=f"{time_ms:015d}~")
            for row in read_all(self._engine, query):
                _, owner, subscription_id = row.sk.split("#", 2)
                yield Due(Owner(owner), subscription_id, shard, row.sk)

    def forget_due(self, dues: Sequence[Due]) -> None:
        self._engine.write_batch(
            [Delete(Table.LEDGER, f"due#{each.shard}", each.sk) for each in dues]
        )

    def is_proven(self, owner: Owner, address: str) -> bool:
        """Whether the owner has proven in the last day that it receives at the address."""
        return self._engine.get(Table.LEDGER, f"proof#{owner}#{address}", _PROOF) is not None

    def was_refused(self, owner: Owner, address: str) -> bool:
        """Whether the address has refused a proof a moment ago."""
        key = f"proof#{owner}#{address}", _REFUSED
        return self._engine.get(Table.LEDGER, *key) is not None

    def refuse(self, owner: Owner, address: str, now: int) -> None:
        item = {EXPIRES: now + _REFUSED_SECONDS}
        self._engine.write(Put(Table.LEDGER, f"proof#{owner}#{address}", _REFUSED, item))

    def prove(self, owner: Owner, address: str, now: int) -> None:
        item = {EXPIRES: now + _PROOF_SECONDS}
        self._engine.write(Put(Table.LEDGER, f"proof#{owner}#{address}", _PROOF, item))


def standing_of(
    owner: Owner, subscription_id: str, account: Item | None, agreed: Agreed | None, now: int
) -> Standing:
    if account is None or "v" not in account:
        return Standing(None, None)
    if agreed is None or is_expired(account, now):
        return Standing(None, account["v"])
    return Standing(_subscription(owner, subscription_id, account, agreed), account["v"])


def _standing(
    owner: Owner, subscription_id: str, account: Item | None, terms: Item | None, now: int
) -> Standing:
    agreed = None if terms is None else _agreed(terms)
    return standing_of(owner, subscription_id, account, agreed, now)


def account_key(subscription: PaidSubscription) -> Key:
    return _pk(subscription.owner, subscription.id), _ACCOUNT


def _pk(owner: Owner, subscription_id: str) -> str:
    return f"paid#{owner}#{subscription_id}"


def _named(place: str) -> tuple[Owner, str]:
    _, owner, subscription_id = place.split("#", 2)
    return Owner(owner), subscription_id


def _of(owner: Owner) -> str:
    return f"paid-of#{owner}"


def _shard(text: str) -> int:
    return sha256(text.encode()).digest()[0] % _SHARDS


def _message_key(digest: str) -> Key:
    return f"msg#{digest}", _MESSAGE


def _gone_after(subscription: PaidSubscription) -> int:
    return subscription.expires_at + GRACE_SECONDS + _MARGIN_SECONDS


# Items


def _numbers(subscription: PaidSubscription) -> dict[str, int]:
    """Attributes that are added to: others may add to them at the same time."""
    account = subscription.account
    return {
        "credit": account.credit,
        "spent": account.spent,
        "delivered": account.delivered,
        "replays": account.replays,
        "credited": subscription.credited,
        "refilled": subscription.refilled,
        "budget": subscription.budget,
    }


def _assigned(subscription: PaidSubscription) -> dict[str, Any]:
    trouble = subscription.trouble
    return {
        "cursor": subscription.account.cursor.to_int(),
        "mark": subscription.account.paid_mark.to_int(),
        "floor": subscription.floor.to_int(),
        "state": subscription.state.value,
        "gen": subscription.generation,
        "began": subscription.began,
        "until": subscription.expires_at,
        "last": subscription.last_timestamp,
        "since": subscription.since,
        "stored": subscription.stored,
        "low": int(subscription.is_low),
        "spread": int(subscription.is_spread),
        "trouble": [trouble.failures, trouble.since, trouble.refusals, trouble.attempts],
        "ending": subscription.ending,
        "returned": subscription.returned,
        "told": int(subscription.is_told),
    }


def _account_item(new: PaidSubscription, version: int) -> dict[str, Any]:
    return {**_numbers(new), **_assigned(new), "v": version + 1, "lease": 0, "holder": ""}


def _terms_item(agreed: Agreed) -> dict[str, Any]:
    terms = agreed.terms
    return {
        "model": terms.model.value,
        "price": terms.price,
        "event_fee": terms.event_fee,
        "minute_fee": terms.minute_fee,
        "max_ttl": terms.max_ttl,
        "max_events": terms.max_events,
        "asset_code": terms.asset_code,
        "asset_scale": terms.asset_scale,
        "filters": orjson.dumps([filter.as_dict() for filter in agreed.filters]).decode(),
        "delivery": agreed.delivery.value,
        "peer": agreed.peer,
        "reply_to": agreed.reply_to,
        "window": agreed.window,
        "hops": agreed.hops,
        "path": list(agreed.path),
        "origin": agreed.origin,
    }


def _agreed(item: Item) -> Agreed:
    text = item["filters"]
    return Agreed(
        terms=Terms(
            model=Model(item["model"]),
            price=item["price"],
            event_fee=item["event_fee"],
            minute_fee=item["minute_fee"],
            max_ttl=item["max_ttl"],
            max_events=item["max_events"],
            asset_code=item["asset_code"],
            asset_scale=item["asset_scale"],
        ),
        filters=_remembered_filters(text) if len(text) < _TEXT_REMEMBERED else _filters(text),
        delivery=Delivery(item["delivery"]),
        peer=item["peer"],
        reply_to=item["reply_to"],
        window=item["window"],
        hops=item["hops"],
        path=tuple(item["path"]),
        origin=item["origin"],
    )


def _filters(text: str) -> tuple[Filter, ...]:
    return tuple(parse_filter(value) for value in orjson.loads(text))


_remembered_filters = lru_cache(maxsize=2048)(_filters)


def _subscription(
    owner: Owner, subscription_id: str, item: Item, agreed: Agreed
) -> PaidSubscription:
    return PaidSubscription(
        owner=owner,
        id=subscription_id,
        agreed=agreed,
        account=Account(
            credit=item["credit"],
            cursor=Position.from_int(item["cursor"]),
            paid_mark=Position.from_int(item["mark"]),
            spent=item["spent"],
            delivered=item["delivered"],
            replays=item["replays"],
        ),
        state=State(item["state"]),
        began=item["began"],
        expires_at=item["until"],
        last_timestamp=item["last"],
        since=item["since"],
        stored=item["stored"],
        floor=Position.from_int(item["floor"]),
        version=item["v"],
        generation=item["gen"],
        credited=item["credited"],
        refilled=item["refilled"],
        budget=item["budget"],
        is_low=bool(item["low"]),
        is_spread=bool(item["spread"]),
        trouble=Trouble(*item["trouble"]),
        ending=item["ending"],
        returned=item["returned"],
        is_told=bool(item["told"]),
        lease_ms=item["lease"],
    )
