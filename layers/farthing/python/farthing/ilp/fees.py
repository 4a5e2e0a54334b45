"""What a connector keeps of a packet that it forwards: a fixed part, and millionths of the amount,
but never less than a least fee. A packet of amount 0 has nothing that could be kept.

Routes are compared before anybody knows what a packet will carry. A share counts then as what it
takes of a typical packet.
"""

TYPICAL_AMOUNT = 10_000
MILLION = 1_000_000


def forwarding_fee(fixed: int, ppm: int, amount: int, least: int = 0) -> int:
    return max(fixed + amount * ppm // MILLION, least) if amount else 0
