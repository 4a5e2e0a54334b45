"""What a relay sends to a subscriber. The same subscription and position give the same bytes."""

from dataclasses import dataclass

import orjson

from farthing.btp_nips.codec import Written, write, written
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

    A message says who sends it: a receiver knows its subscription by (sender, subscription id).
    """

    subscription_id: str
    relay_pubkey: str
    asset_code: str
    began: int

    def event(self, position: Position, event_json: str, created_at: int, fee: int) -> Written:
        """A delivery, with the fee that is drawn for it. The event's JSON is not parsed again."""
        purpose = Purpose.EVENT_PUBLISH if fee else Purpose.RELAY_FEE
        return written(
            MessageType.EVENT,
            {"amount": str(fee), "currency": self.asset_code, "purpose": purpose},
            {"subscriptionId": self.subscription_id, "event": orjson.Fragment(event_json)},
            {
                "timestamp": self._not_before_the_beginning(created_at),
                "sender": self.relay_pubkey,
                "position": str(position),
            },
        )

    def too_large(self, position: Position, event_id: str, created_at: int) -> Written:
        """Takes the place of an event that no packet has room for. Nothing is drawn for it."""
        text = f"event {event_id} is too large for a packet"
        moment = self._not_before_the_beginning(created_at)
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
        """AUTH: asks whoever receives at an address to prove that it holds the owner's key."""
        return write(Auth(self.subscription_id, octets, self._no_payment(), self._metadata(moment)))

    def _notice(self, text: str, moment: int, position: Position | None) -> Written:
        metadata = self._metadata(moment, position)
        return write(Notice(text, self._no_payment(), metadata, self.subscription_id))

    def _no_payment(self) -> Payment:
        return Payment(0, self.asset_code, Purpose.RELAY_FEE)

    def _metadata(self, moment: int, position: Position | None = None) -> Metadata:
        return Metadata(moment, sender=self.relay_pubkey, position=position)

    def _not_before_the_beginning(self, created_at: int) -> int:
        return max(created_at, self.began)
