"""What a connector keeps of a packet that it forwards: a fixed part, and millionths of the amount.

Routes are compared before anybody knows what a packet will carry. A share counts then as what it
takes of a typical packet.
"""

TYPICAL_AMOUNT = 10_000
MILLION = 1_000_000


def forwarding_fee(fixed: int, ppm: int, amount: int) -> int:
    return fixed + amount * ppm // MILLION
