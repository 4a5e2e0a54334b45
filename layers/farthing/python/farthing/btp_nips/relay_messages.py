"""The messages from a relay to a subscriber. The same subscription and position give the same
bytes."""

from dataclasses import dataclass
from typing import NamedTuple

import orjson

from farthing.btp_nips.codec import Written, write
from farthing.btp_nips.errors import RelayError, bracketed
from farthing.btp_nips.messages import (
    Auth,
    Closed,
    Eose,
    MessageType,
    Metadata,
    Notice,
    Payment,
    Purpose,
)
from farthing.btp_nips.positions import Position


@dataclass(frozen=True, slots=True)
class RelayMessages:
    """The messages of one subscription, which began at the second `began`.

    Each message names its sender: a receiver identifies its subscription by (sender, subscription
    id).
    """

    subscription_id: str
    relay_pubkey: str
    asset_code: str
    began: int

    def event(self, position: Position, event_json: str, created_at: int, fee: int) -> Written:
        """A delivery, with the fee that is charged for it. The event's JSON is not parsed again."""
        return self.events(fee).of(position, event_json, created_at)

    def events(self, fee: int) -> "Deliveries":
        """Deliveries that each cost this fee."""
        purpose = Purpose.EVENT_PUBLISH if fee else Purpose.RELAY_FEE
        opening = orjson.dumps(
            {
                "payment": {"amount": str(fee), "currency": self.asset_code, "purpose": purpose},
                "nostr": {
                    "type": MessageType.EVENT.name,
                    "subscriptionId": self.subscription_id,
                },
            }
        )
        sender = orjson.dumps({"sender": self.relay_pubkey})
        return Deliveries(opening.removesuffix(b"}}"), sender[1:-1], self.began)

    def too_large(self, position: Position, event_id: str, created_at: int) -> Written:
        """A free NOTICE in place of an event that is too large for a packet."""
        text = f"event {event_id} is too large for a packet"
        moment = max(created_at, self.began)
        return self._notice(bracketed(RelayError.error, text), moment, position)

    def eose(self, position: Position, event_count: int, token: str, credit: int) -> Written:
        return write(
            Eose(
                self.subscription_id,
                self._no_payment(),
                self._metadata(self.began, position),
                event_count=event_count,
                resumption_token=token,
                credit=credit,
            )
        )

    def notice(self, error: str, text: str, moment: int) -> Written:
        return self._notice(bracketed(error, text), moment, None)

    def closed(self, reason: str, moment: int) -> Written:
        return write(
            Closed(self.subscription_id, reason, self._no_payment(), self._metadata(moment))
        )

    def challenge(self, octets: bytes, moment: int) -> Written:
        """AUTH: asks the receiver at an address to prove that it holds the owner's key."""
        return write(Auth(self.subscription_id, octets, self._no_payment(), self._metadata(moment)))

    def _notice(self, text: str, moment: int, position: Position | None) -> Written:
        metadata = self._metadata(moment, position)
        return write(Notice(text, self._no_payment(), metadata, self.subscription_id))

    def _no_payment(self) -> Payment:
        return Payment(0, self.asset_code, Purpose.RELAY_FEE)

    def _metadata(self, moment: int, position: Position | None = None) -> Metadata:
        return Metadata(moment, sender=self.relay_pubkey, position=position)


class Deliveries(NamedTuple):
    """EVENT messages of one subscription. They differ only in the event, its time and its position.
    The common part is written once."""

    opening: bytes  # up to the subscription's id
    sender: bytes
    began: int

    def of(self, position: Position, event_json: str, created_at: int) -> Written:
        body = b'%b,"event":%b},"metadata":{"timestamp":%d,%b,"position":"%b"}}' % (
            self.opening,
            event_json.encode(),
            max(created_at, self.began),
            self.sender,
            str(position).encode(),
        )
        return Written(MessageType.EVENT, body)
