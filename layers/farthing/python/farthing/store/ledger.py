"""Money: peers, their balances, holds for packets under way, and receipts.

A balance has two parts: `posted` is owed, and `pending` is held for packets that are not settled
yet. `owed` is their sum, and a condition keeps it within the peer's limit. One transaction makes a
movement and the purchase that it pays for. So nothing can be half done, and a repeat moves nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from farthing.store.payment import Payment
from farthing.store.receipts import Forwarded, Receipt, receipt_of, receipts_of
from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    Condition,
    ConditionFailed,
    Contended,
    Delete,
    Engine,
    Equals,
    Item,
    LessThan,
    Put,
    Query,
    Table,
    TransactionCancelled,
    TransactWrite,
    is_expired,
    read_all,
)

_PEER = "peer"
_TOKEN = "token"  # noqa: S105 - a sort key
_BALANCE = "balance"
_PUBKEY = "pubkey"
_ADDRESS = "address"
_REQUEST = "request"
_LIMITS = "limits"  # attribute of a peer's record: the version of its limits
_PEERS = "peers"  # partition that lists the peers
_FORMER = "former-peers"  # partition that lists removed peers, whose history stays
_HOLD_SHARDS = 8
_REQUEST_SECONDS = 24 * 3600
_ATTEMPTS = 10  # each lost race means that another process has made progress

# A peer's id is a part of keys, whose parts are separated by `#`.
_PEER_ID = re.compile(r"[A-Za-z0-9._:@-]{1,128}").fullmatch


class LedgerError(Exception):
    """The ledger refuses the request."""


class PeerExists(LedgerError):
    pass


class InvalidPeerId(LedgerError):
    pass


class UnknownPeer(LedgerError):
    pass


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent that sends us packets and takes packets from us. Its token is kept as a hash."""

    id: str
    token_hash: str
    ilp_address: str = ""
    endpoint: str = ""  # the URL of the peer's connector; also the only place for callbacks
    max_balance: int | None = None  # the most that the peer may owe us; None takes the setting
    max_packet: int | None = None  # the largest amount of a packet; None takes the setting
    asset_code: str = ""
    asset_scale: int = 0
    jwt_secret: bytes | None = None  # sealed; see `ilp.tokens`
    pubkey: str = ""  # the peer's Nostr key: routes name their next hop by it
    outgoing_token: bytes | None = None  # the token that we show at the peer's endpoint, sealed
    active: bool = True  # whether we accept its packets and send it packets
    from_follows: bool = False  # made from the owner's follow list and the peer's kind 10032

    @property
    def takes_packets(self) -> bool:
        return self.active and bool(self.endpoint)


class Balance(NamedTuple):
    posted: int = 0
    pending: int = 0
    payable: int = 0  # our debt to the peer for packets that it fulfilled
    owed: int = 0  # posted and pending together: the limit applies to this sum


@dataclass(frozen=True, slots=True)
class Hold:
    peer: str
    packet: str
    amount: int
    expires_ms: int

    @property
    def key(self) -> tuple[str, str]:
        shard = int(self.packet[:8], 16) % _HOLD_SHARDS
        return f"hold#{shard}", f"{self.expires_ms:015d}#{self.peer}#{self.packet}"


def hash_token(token: str) -> str:
    # Header values may contain surrogates for invalid bytes.
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def _places(peer: Peer) -> list[tuple[str, str]]:
    """The keys of a peer's record: one for each way to find the peer."""
    places = [(_PEERS, peer.id), (f"token#{peer.token_hash}", _TOKEN)]
    if peer.pubkey:
        places.append((f"pubkey#{peer.pubkey}", _PUBKEY))
    if peer.ilp_address:
        places.append((f"address#{peer.ilp_address}", _ADDRESS))
    return places


def _balance_key(peer: str) -> str:
    return f"balance#{peer}"


def balance_place(peer: str) -> tuple[str, str]:
    return _balance_key(peer), _BALANCE


class Ledger:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Peers

    def add_peer(self, peer: Peer) -> None:
        if not _PEER_ID(peer.id):
            raise InvalidPeerId("expected a peer's id of letters, digits and . _ : @ - only")
        item = _peer_item(peer)
        try:
            self._engine.transact(
                [Put(Table.LEDGER, *place, item, Absent()) for place in _places(peer)]
            )
        except TransactionCancelled:
            raise PeerExists(
                f"peer {peer.id!r} exists already, or a peer with this token, key or address"
            ) from None

    def replace_peer(self, peer: Peer) -> None:
        """Replace a peer's whole record. Raises PeerExists if another peer has the new token, key
        or address."""
        known = self.peer(peer.id)
        if known is None:
            raise UnknownPeer(f"there is no peer {peer.id!r}")
        item, before, after = _peer_item(peer), _places(known), _places(peer)
        writes: list[TransactWrite] = [
            *(Delete(Table.LEDGER, *place) for place in before if place not in after),
            *(
                Put(Table.LEDGER, *place, item,
                    Equals("id", peer.id) if place in before else Absent())
                for place in after
            ),
        ]  # fmt: skip
        try:
            self._engine.transact(writes)
        except TransactionCancelled:
            raise PeerExists("another peer has this token, key or address") from None

    def remove_peer(self, peer_id: str) -> bool:
        """Remove a peer. Its balance and receipts stay as history."""
        peer = self.peer(peer_id)
        if peer is None:
            return False
        self._engine.transact(
            [
                *(Delete(Table.LEDGER, *place) for place in _places(peer)),
                Put(Table.LEDGER, _FORMER, peer.id, {}),
            ]
        )
        return True

    def peer(self, peer_id: str) -> Peer | None:
        if not _PEER_ID(peer_id):  # strangers may ask for any name, even one of a megabyte
            return None
        return _peer(self._engine.get(Table.LEDGER, _PEERS, peer_id))

    def peer_by_token_hash(self, token_hash: str) -> Peer | None:
        return _peer(self._engine.get(Table.LEDGER, f"token#{token_hash}", _TOKEN))

    def peer_by_pubkey(self, pubkey: str) -> Peer | None:
        return _peer(self._engine.get(Table.LEDGER, f"pubkey#{pubkey}", _PUBKEY))

    def peer_by_address(self, addresses: Iterable[str]) -> Peer | None:
        """The peer with the first of the addresses that belongs to a peer."""
        keys = [(f"address#{each}", _ADDRESS) for each in addresses]
        found = self._engine.get_many(Table.LEDGER, keys)
        return next((_peer(found[key]) for key in keys if key in found), None)

    def records_of(self, peer: Peer) -> dict[str, Peer | None]:
        """The records that lead to a peer, by the kind of key: id, token, pubkey, address."""
        places = {sk if pk != _PEERS else "id": (pk, sk) for pk, sk in _places(peer)}
        found = self._engine.get_many(Table.LEDGER, places.values())
        return {name: _peer(found.get(place)) for name, place in places.items()}

    def peers(self) -> Iterator[Peer]:
        for row in read_all(self._engine, Query(Table.LEDGER, _PEERS)):
            peer = _peer(row.item)
            if peer is not None:
                yield peer

    def account_ids(self) -> list[str]:
        """Peers and former peers: both have an account."""
        pages = (read_all(self._engine, Query(Table.LEDGER, pk)) for pk in (_PEERS, _FORMER))
        return sorted({row.sk for rows in pages for row in rows})

    def has_account(self, peer_id: str) -> bool:
        """Whether this is or was a peer."""
        if not _PEER_ID(peer_id):
            return False
        places = [(_PEERS, peer_id), (_FORMER, peer_id)]
        return any(self._engine.get(Table.LEDGER, *place) is not None for place in places)

    # Balances

    def balance(self, peer_id: str) -> Balance:
        item = self._engine.get(Table.LEDGER, _balance_key(peer_id), _BALANCE)
        return Balance() if item is None else Balance(**item)

    def receipt(self, receipt: Receipt) -> Receipt | None:
        """The stored receipt under the key of this one."""
        item = self._engine.get(Table.LEDGER, *receipt.key)
        return None if item is None else receipt_of(item)

    def forwarded_before(self, peer_id: str, condition: str, digest: str) -> Receipt | None:
        """The receipt of the first packet of this peer with this condition, destination, amount and
        data that was forwarded."""
        mark = Forwarded("", 0, 0, digest).mark
        item = self._engine.get(Table.LEDGER, receipts_of(peer_id), f"{condition}#{mark}")
        return None if item is None else receipt_of(item)

    def receipts(self, peer_id: str) -> Iterator[Receipt]:
        for row in read_all(self._engine, Query(Table.LEDGER, receipts_of(peer_id))):
            yield receipt_of(row.item)

    def payment(self, receipt: Receipt, max_balance: int) -> Payment:
        """An immediate payment, for one transaction with the purchase. Nothing is written for an
        amount of 0.

        The receipt is the first write: it fails if the packet is a repeat.
        """
        if not receipt.amount:
            return Payment((), receipt.reference)
        moved = {"posted": receipt.amount, "owed": receipt.amount}
        writes = (
            Put(Table.LEDGER, *receipt.key, receipt.item(), Absent()),
            _movement(receipt.peer, moved, receipt.amount, max_balance),
        )
        return Payment(writes, receipt.reference)

    def forwarded(self, receipt: Receipt) -> list[TransactWrite]:
        """The writes that go with `post` for a forwarded packet: its receipt, and our debt to the
        next hop."""
        purpose = receipt.purpose
        assert isinstance(purpose, Forwarded)
        writes: list[TransactWrite] = [Put(Table.LEDGER, *receipt.key, receipt.item(), Absent())]
        if purpose.outgoing:
            owed = {"payable": purpose.outgoing}
            writes.append(Add(Table.LEDGER, _balance_key(purpose.next_hop), _BALANCE, owed))
        return writes

    # Holds, for packets that the next hop fulfils

    def hold(self, hold: Hold, max_balance: int) -> bool:
        """Reserve an amount until the packet is settled; False if the balance has no room."""
        if not hold.amount:
            return True
        moved = {"pending": hold.amount, "owed": hold.amount}
        try:
            self._engine.transact(
                [
                    Put(Table.LEDGER, *hold.key, {"amount": hold.amount}, Absent()),
                    _movement(hold.peer, moved, hold.amount, max_balance),
                ]
            )
        except TransactionCancelled:
            return False
        return True

    def post(self, hold: Hold, along: Sequence[TransactWrite] = ()) -> bool:
        """Book the held amount. False if the hold was released meanwhile; then nothing moves."""
        return self._close(hold, {"pending": -hold.amount, "posted": hold.amount}, along)

    def release(self, hold: Hold) -> bool:
        """Release the held amount. False if the hold was settled before."""
        return self._close(hold, {"pending": -hold.amount, "owed": -hold.amount}, ())

    def _close(self, hold: Hold, moved: dict[str, int], along: Sequence[TransactWrite]) -> bool:
        settled: list[TransactWrite] = [
            Delete(Table.LEDGER, *hold.key, Equals("amount", hold.amount)),
            Add(Table.LEDGER, _balance_key(hold.peer), _BALANCE, moved),
        ]
        try:
            self._engine.transact([*(settled if hold.amount else ()), *along])
        except TransactionCancelled:
            return False
        return True

    def holds(self, until_ms: int | None = None) -> Iterator[Hold]:
        """The open holds; with `until_ms`, only those whose packets have expired by then."""
        high = None if until_ms is None else f"{until_ms:015d}~"
        for shard in range(_HOLD_SHARDS):
            for row in read_all(self._engine, Query(Table.LEDGER, f"hold#{shard}", high=high)):
                expires, peer, packet = row.sk.split("#")
                yield Hold(peer, packet, row.item["amount"], int(expires))

    def release_expired(self, now_ms: int) -> int:
        """Release the holds of packets that can no longer be fulfilled. Returns their number."""
        return sum(self.release(hold) for hold in list(self.holds(now_ms)))

    # Requests, answered once

    def claim_request(self, peer_id: str, request_id: str, packet: str, now: int) -> Item | None:
        """Claim a Request-Id for a packet. Returns None if the claim succeeds, else the stored
        item."""
        item = {"packet": packet, EXPIRES: now + _REQUEST_SECONDS}
        condition: Condition = Absent()
        place = _request_place(peer_id, request_id)
        for _ in range(_ATTEMPTS):
            try:
                self._engine.write(Put(Table.LEDGER, *place, item, condition))
                return None
            except ConditionFailed as failure:
                standing = failure.current
            if standing is not None and not is_expired(standing, now):
                return standing
            # Conditions see expired items until they are purged, in the cloud days later.
            condition = Absent() if standing is None else Equals(EXPIRES, standing[EXPIRES])
        raise Contended("other processes are claiming the Request-Id")

    def answer_request(self, peer_id: str, request_id: str, reply: bytes) -> None:
        place = _request_place(peer_id, request_id)
        self._engine.write(Add(Table.LEDGER, *place, {}, {"reply": reply}))

    def reply_to_request(self, peer_id: str, request_id: str) -> bytes | None:
        """The reply that was kept for a claimed Request-Id; None until there is one."""
        item = self._engine.get(Table.LEDGER, *_request_place(peer_id, request_id))
        return None if item is None else item.get("reply")


def _request_place(peer_id: str, request_id: str) -> tuple[str, str]:
    return f"request#{peer_id}#{sha256(request_id.encode()).hexdigest()}", _REQUEST


def _movement(peer: str, moved: dict[str, int], amount: int, max_balance: int) -> Add:
    # The limit applies to the peer's debt afterwards: a peer that has paid in advance may spend its
    # advance.
    condition = LessThan("owed", max_balance - amount + 1)
    return Add(Table.LEDGER, _balance_key(peer), _BALANCE, moved, condition=condition)


def _peer(item: Item | None) -> Peer | None:
    if item is None:
        return None
    fields: dict[str, Any] = dict(item)
    # In records of an older version, 0 meant no limit of the peer's own.
    if fields.pop(_LIMITS, 0) < 1:
        for name in ("max_balance", "max_packet"):
            fields[name] = fields.get(name) or None
    return Peer(**fields)


def _peer_item(peer: Peer) -> dict[str, Any]:
    return {**asdict(peer), _LIMITS: 1}
