"""The reasons for rejecting a packet: narrow classes, each with its reject code."""

from farthing.ilp.oer import u64
from farthing.ilp.packet import Code, Reject


class Rejected(Exception):
    """Turned into a Reject in one place. `message` and `data` go to the sender of the packet."""

    code: Code

    def __init__(self, message: str, data: bytes = b"") -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class BadRequest(Rejected):
    code = Code.F00_BAD_REQUEST


class Unreachable(Rejected):
    code = Code.F02_UNREACHABLE


class InvalidAmount(Rejected):
    code = Code.F03_INVALID_AMOUNT


class PriceNotMet(Rejected):
    code = Code.F04_INSUFFICIENT_DESTINATION_AMOUNT


class WrongCondition(Rejected):
    code = Code.F05_WRONG_CONDITION


class UnexpectedPayment(Rejected):
    code = Code.F06_UNEXPECTED_PAYMENT


class AmountTooLarge(Rejected):
    code = Code.F08_AMOUNT_TOO_LARGE

    def __init__(self, received: int, maximum: int) -> None:
        super().__init__("amount is above the maximum of a packet", u64(received) + u64(maximum))


class RefusedByReceiver(Rejected):
    code = Code.F99_APPLICATION_ERROR


class RejectedAs(Rejected):
    """A Reject that a protocol inside the packet has made: its code and its data."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(reject.message, reject.data)
        self.code = Code(reject.code)


class PeerUnreachable(Rejected):
    code = Code.T01_PEER_UNREACHABLE


class InsufficientLiquidity(Rejected):
    code = Code.T04_INSUFFICIENT_LIQUIDITY


class RateLimited(Rejected):
    code = Code.T05_RATE_LIMITED


class TimedOut(Rejected):
    code = Code.R00_TRANSFER_TIMED_OUT


class InsufficientSourceAmount(Rejected):
    code = Code.R01_INSUFFICIENT_SOURCE_AMOUNT


class InsufficientTimeout(Rejected):
    code = Code.R02_INSUFFICIENT_TIMEOUT


class NextHopRejected(Exception):
    """A Reject of the next hop. It goes back unchanged: `triggeredBy` names the agent that made
    it."""

    def __init__(self, reject: Reject) -> None:
        super().__init__(reject.message)
        self.reject = reject
