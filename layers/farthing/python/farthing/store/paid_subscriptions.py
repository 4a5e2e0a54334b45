"""Paid subscriptions in the ledger: the account, the terms and the backlog of each.

The account is one small item. A change that was planned from a read account is written only if the
account still has the version that was read, so two plans never collide. A running delivery holds a
lease instead: its commit requires only that it still holds the lease, so a top-up does not disturb
it. An end, other filters or a pull take the lease away, and a late commit of its holder fails.

Rows by due time and rows by owner are hints, which are checked against the account. The totals of
ended subscriptions are kept under their owner, so that the ledger can be audited after the records
have expired.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Final, NamedTuple

from farthing.btp_nips.identity import Owner
from farthing.btp_nips.positions import Position
from farthing.btp_nips.tokens import GRACE_SECONDS
from farthing.store.paid_index import PAID_INDEX
from farthing.store.paid_records import (
    PaidSubscription,
    Standing,
    account_item,
    assigned_of,
    numbers_of,
    standing_of,
    terms_item,
)
from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    Condition,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Key,
    LessThan,
    Put,
    Query,
    Table,
    TransactWrite,
    read_all,
)

_ACCOUNT = "account"
_TERMS = "terms"
_BACKLOG = "backlog"
_TOTALS = "totals"
_ROW = "id#"
_ROWS_END = "id$"  # the next character: an id may hold any
_MESSAGE = "message"
_PROOF = "proof"
_ORIGIN = "origin"
_REFUSED = "refused"
_SHARDS: Final = 8
_PROOF_SECONDS: Final = 24 * 3600
_REFUSED_SECONDS: Final = 60
# Records with an expiry are kept a little longer than they are needed.
_MARGIN_SECONDS: Final = 3600


class Message(NamedTuple):
    """A message that had its effect."""

    peer: str
    owner: str  # the owner that the message belongs to
    start: Position | None  # the position behind which its pull began


class Totals(NamedTuple):
    """An owner's subscriptions: the number of open ones, and the totals of those that have
    ended."""

    open: int = 0
    credited: int = 0
    refilled: int = 0
    spent: int = 0
    returned: int = 0


# Owners and ids of subscriptions are far shorter, and no key has room for more.
_LONGEST_NAMES = 500


class Due(NamedTuple):
    """A hint that a subscription has work to do."""

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
        return standing_of(owner, subscription_id, found.get(keys[0]), found.get(keys[1]), now)

    def get(self, owner: Owner, subscription_id: str, now: int) -> PaidSubscription | None:
        if len(owner) + len(subscription_id) > _LONGEST_NAMES:  # strangers may ask for any name
            return None
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
            subscription = standing_of(*key, account, terms, now).subscription
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
        """The message with this hash, if it had its effect."""
        item = self._engine.get(Table.LEDGER, *_message_key(digest))
        if item is None:
            return None
        start = item.get("start")
        position = None if start is None else Position.from_int(start)
        return Message(item["peer"], item["owner"], position)

    def owners(self) -> Iterator[Owner]:
        """All owners that have or had subscriptions."""
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
        query = Query(Table.LEDGER, _of(owner), low=_ROW, high=_ROWS_END)
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
        """Open a subscription, possibly in place of an ended one. The second write fails if the
        owner has too many open subscriptions, the third if the peer has."""
        pk = _pk(new.owner, new.id)
        version = standing.version
        unchanged: Condition = Absent() if version is None else Equals("v", version)
        writes: list[TransactWrite] = [
            Put(Table.LEDGER, pk, _ACCOUNT, account_item(new, version or 0), unchanged),
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
        """The write that changes the account, on the condition of the old version or of the held
        lease. `lease_ms` is the end of the lease afterwards: 0 releases the lease, and None leaves
        it unchanged."""
        before, after = numbers_of(old), numbers_of(new)
        amounts = {name: after[name] - before[name] for name in after}
        amounts = {name: amount for name, amount in amounts.items() if amount}
        was, is_now = assigned_of(old), assigned_of(new)
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
        """The writes of new terms, and with `backlog` of new stored events."""
        return [self._terms(new), *(() if backlog is None else self._backlog(new, backlog))]

    def extend(self, new: PaidSubscription) -> list[TransactWrite]:
        """The further writes of a later expiry."""
        pk, assign = _pk(new.owner, new.id), {EXPIRES: _gone_after(new)}
        writes: list[TransactWrite] = [self.due(new, new.expires_at * 1000)]
        if new.stored:
            writes.append(Add(Table.LEDGER, pk, _BACKLOG, {}, assign, Equals("count", new.stored)))
        return writes

    def end(self, ended: PaidSubscription, now: int) -> list[TransactWrite]:
        """The further writes of an end, beside the account's change and the money."""
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

    def give_back(self, owner: Owner, amount: int) -> Add:
        """The write for an amount that goes back to the owner from the spending of an ended
        subscription."""
        return Add(Table.LEDGER, _of(owner), _TOTALS, {"spent": -amount, "returned": amount})

    def note(self, digest: str, peer: str, owner: Owner, start: Position | None, until: int) -> Put:
        """Store the hash of a message. Fails if the message had its effect already."""
        item: dict[str, Any] = {"peer": peer, "owner": owner, EXPIRES: until + 1}
        if start is not None:
            item["start"] = start.to_int()
        return Put(Table.LEDGER, *_message_key(digest), item, Absent())

    def origin_of(self, origin: str) -> tuple[str, str] | None:
        """The (owner, id) of the subscription with this origin."""
        item = self._engine.get(Table.LEDGER, f"origin#{origin}", _ORIGIN)
        return None if item is None else (item["owner"], item["id"])

    def know_origin(self, subscription: PaidSubscription, now: int, *, is_own: bool) -> Put:
        """Store the subscription's origin, so that it is recognised if it comes by another way.
        Fails if another one has just stored it; `is_own` says that no other subscription has this
        origin."""
        until = _gone_after(subscription)
        item = {
            "owner": subscription.owner,
            "id": subscription.id,
            "until": until,
            EXPIRES: until,
        }
        # The condition is not Absent: DynamoDB keeps expired items for a while.
        unknown = None if is_own else LessThan("until", now)
        return Put(Table.LEDGER, f"origin#{subscription.agreed.origin}", _ORIGIN, item, unknown)

    def due(self, subscription: PaidSubscription, time_ms: int) -> Put:
        pk = f"due#{_shard(subscription.owner + subscription.id)}"
        sk = f"{time_ms:015d}#{subscription.owner}#{subscription.id}"
        return Put(Table.LEDGER, pk, sk, {})

    def _terms(self, new: PaidSubscription) -> Put:
        item = {**terms_item(new.agreed), EXPIRES: _gone_after(new)}
        return Put(Table.LEDGER, _pk(new.owner, new.id), _TERMS, item)

    def _backlog(self, new: PaidSubscription, backlog: bytes) -> list[TransactWrite]:
        pk = _pk(new.owner, new.id)
        if not backlog:
            return [Delete(Table.LEDGER, pk, _BACKLOG)]
        item = {"ids": backlog, "count": new.stored, EXPIRES: _gone_after(new)}
        return [Put(Table.LEDGER, pk, _BACKLOG, item)]

    # Hints for fan-out

    def write_hints(self, subscription: PaidSubscription) -> None:
        """Write the hints before the subscription is open, so that no event is missed."""
        item = {EXPIRES: _gone_after(subscription)}
        self._engine.write_batch(
            [Put(Table.LEDGER, *key, item) for key in self._hints(subscription)]
        )

    def forget_hints(self, subscription: PaidSubscription) -> None:
        self._engine.write_batch([Delete(Table.LEDGER, *key) for key in self._hints(subscription)])

    def _hints(self, subscription: PaidSubscription) -> list[Key]:
        return PAID_INDEX.hints(subscription.filters, subscription.place)

    def open_at(self, places: Collection[str], now: int) -> dict[str, PaidSubscription]:
        """The subscriptions that hints name, if the hints are still valid."""
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

    # Complete operations

    def take_lease(
        self, owner: Owner, subscription_id: str, holder: str, now_ms: int, until_ms: int
    ) -> PaidSubscription | None:
        """Take the lease for a delivery. None if another caller holds it, or if there is no
        subscription."""
        pk, assign = _pk(owner, subscription_id), {"lease": until_ms, "holder": holder}
        free = LessThan("lease", now_ms)
        try:
            item = self._engine.write(Add(Table.LEDGER, pk, _ACCOUNT, {}, assign, free))
        except ConditionFailed:
            return None
        assert item is not None
        if "v" not in item:  # there was no item, so the write has made an empty one
            self._engine.write(Delete(Table.LEDGER, pk, _ACCOUNT, Equals("holder", holder)))
            return None
        terms = self._engine.get(Table.LEDGER, pk, _TERMS)
        return standing_of(owner, subscription_id, item, terms, now_ms // 1000).subscription

    def commit(
        self,
        old: PaidSubscription,
        new: PaidSubscription,
        holder: str,
        lease_ms: int = 0,
    ) -> bool:
        """Write the new state as the holder of the lease, and prolong or release the lease. False
        if another caller has the lease; then nothing is written."""
        try:
            self._engine.write(self.change(old, new, holder=holder, lease_ms=lease_ms))
        except ConditionFailed:
            return False
        return True

    def leave(self, owner: Owner, subscription_id: str, holder: str) -> None:
        """Release the lease without another change."""
        pk, assign = _pk(owner, subscription_id), {"lease": 0, "holder": ""}
        with suppress(ConditionFailed):  # another caller has the lease
            mine = Equals("holder", holder)
            self._engine.write(Add(Table.LEDGER, pk, _ACCOUNT, {}, assign, mine))

    def break_lease(self, subscription: PaidSubscription) -> None:
        """Release a lease whose holder has ended."""
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
        """Whether the owner has proven within the last day that it receives at the address."""
        return self._engine.get(Table.LEDGER, f"proof#{owner}#{address}", _PROOF) is not None

    def was_refused(self, owner: Owner, address: str) -> bool:
        """Whether the address has recently refused a proof."""
        key = f"proof#{owner}#{address}", _REFUSED
        return self._engine.get(Table.LEDGER, *key) is not None

    def refuse(self, owner: Owner, address: str, now: int) -> None:
        item = {EXPIRES: now + _REFUSED_SECONDS}
        self._engine.write(Put(Table.LEDGER, f"proof#{owner}#{address}", _REFUSED, item))

    def prove(self, owner: Owner, address: str, now: int) -> None:
        item = {EXPIRES: now + _PROOF_SECONDS}
        self._engine.write(Put(Table.LEDGER, f"proof#{owner}#{address}", _PROOF, item))


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
