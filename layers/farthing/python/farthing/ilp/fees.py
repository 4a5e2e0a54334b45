"""What a connector keeps of a packet that it forwards: a fixed part, and millionths of the amount,
but never less than a least fee. A connector whose fees are both 0 keeps nothing, and of a packet of
amount 0 there is nothing to keep.

Routes are compared before anybody knows what a packet will carry. A share counts then as what it
takes of a typical packet.
"""

TYPICAL_AMOUNT = 10_000
MILLION = 1_000_000


def forwarding_fee(fixed: int, ppm: int, amount: int, least: int = 0) -> int:
    if not amount or not (fixed or ppm):
        return 0
    return max(fixed + amount * ppm // MILLION, least)
