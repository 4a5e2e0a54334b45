"""The JSON that answers carry in the data of a Fulfill, within the size of a packet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import orjson

from farthing.btp_nips import fields as read
from farthing.btp_nips.codec import Written, decode_entry
from farthing.btp_nips.errors import InvalidBody
from farthing.btp_nips.lifecycle import State
from farthing.btp_nips.messages import AMOUNT_MAX, Message
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import LAST, InvalidPosition, Position, parse_position
from farthing.ilp.packet import DATA_MAX

_NUMBER_MAX: Final = 2**53 - 1

# The token holds the position, so it grows as the position does; base64 adds a third.
_TOKEN_ROOM: Final = 2 * len(str(LAST))


@dataclass(frozen=True, slots=True)
class ReqAnswer:
    subscription_id: str
    state: State
    model: Model
    event_count: int
    expires_at_ms: int
    price: int
    event_fee: int
    credit: int
    position: Position
    resumption_token: str

    def encode(self, messages: Iterable[Written] = (), *, more: bool = False) -> bytes:
        return orjson.dumps(
            {
                "subscriptionId": self.subscription_id,
                "status": self.state,
                "model": self.model,
                "eventCount": self.event_count,
                "expiresAt": self.expires_at_ms,
                "price": str(self.price),
                "eventFee": str(self.event_fee),
                "credit": str(self.credit),
                "position": str(self.position),
                "resumptionToken": self.resumption_token,
                "messages": [orjson.Fragment(message.entry) for message in messages],
                "more": more,
            }
        )

    @property
    def room(self) -> int:
        """The octets that are left for messages, with any position and credit after them.

        Messages are chosen before they are charged, and the answer is written afterwards.
        """
        widest = replace(self, credit=AMOUNT_MAX, position=LAST)
        return DATA_MAX - len(widest.encode(more=False)) - _TOKEN_ROOM


class ReadAnswer(NamedTuple):
    answer: ReqAnswer
    messages: list[Message]
    more: bool


def read_req_answer(data: bytes) -> ReadAnswer:
    """A relay's answer to a REQ. Raises InvalidBody, or an exception of `decode_entry`."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise InvalidBody("expected UTF-8 JSON") from None
    if type(fields) is not dict or type(fields.get("messages")) is not list:
        raise InvalidBody("expected a JSON object with an array of messages")
    state = read.optional_choice(fields, "status", State)
    model = read.optional_choice(fields, "model", Model)
    if state is None or model is None:
        raise InvalidBody("expected a status and a model")
    try:
        position = parse_position(read.text(fields, "position"))
    except InvalidPosition as error:
        raise InvalidBody(f"position: {error}") from None
    answer = ReqAnswer(
        subscription_id=read.text(fields, "subscriptionId"),
        state=state,
        model=model,
        event_count=read.integer(fields, "eventCount", 0, _NUMBER_MAX),
        expires_at_ms=read.integer(fields, "expiresAt", 0, _NUMBER_MAX),
        price=read.amount(fields, "price"),
        event_fee=read.amount(fields, "eventFee"),
        credit=read.amount(fields, "credit"),
        position=position,
        resumption_token=read.text(fields, "resumptionToken"),
    )
    messages = [decode_entry(entry) for entry in fields["messages"]]
    return ReadAnswer(answer, messages, read.boolean(fields, "more"))


class Candidate(NamedTuple):
    """A message that may be handed out. If the message is too large for any answer, `instead` makes
    a NOTICE in its place, free of charge."""

    position: Position
    message: Written
    instead: Callable[[], Written] | None = None


class Chosen(NamedTuple):
    position: Position
    message: Written
    is_replaced: bool


def choose_messages(
    room: int, candidates: Iterable[Candidate], *, spare: int = 0
) -> tuple[list[Chosen], bool]:
    """Whole messages, in order, while they fit, and whether some are left for the next pull.
    `spare` octets stay free, unless the first message alone needs them."""
    chosen: list[Chosen] = []
    left = room
    for position, message, instead in candidates:
        is_replaced = instead is not None and message.entry_size > room
        taken = instead() if is_replaced and instead is not None else message
        size = taken.entry_size + (1 if chosen else 0)  # and a comma
        if size > left - (spare if chosen else 0):
            return chosen, True
        chosen.append(Chosen(position, taken, is_replaced))
        left -= size
    return chosen, False


def all_fit(room: int, messages: Sequence[Written]) -> bool:
    return sum(message.entry_size + 1 for message in messages) - 1 <= room  # with commas


def close_answer(subscription_id: str, credit: int) -> bytes:
    """`credit` is the amount that has moved to the purse."""
    return orjson.dumps({"subscriptionId": subscription_id, "closed": True, "credit": str(credit)})


def count_answer(subscription_id: str, count: int, *, approximate: bool = False) -> bytes:
    answer: dict[str, object] = {"subscriptionId": subscription_id, "count": count}
    if approximate:
        answer["approximate"] = True
    return orjson.dumps(answer)


def event_answer(event_id: str) -> bytes:
    return orjson.dumps({"eventId": event_id, "accepted": True, "message": ""})
