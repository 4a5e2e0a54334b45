"""A connector's fee for a forwarded packet: a fixed part, and millionths of the amount, but at
least a minimum fee. A connector keeps nothing if both its fees are 0, or if the packet's amount is
0.

Routes are compared before the amount of a packet is known. There, a share counts as the fee for a
typical packet.
"""

TYPICAL_AMOUNT = 10_000
MILLION = 1_000_000


def forwarding_fee(fixed: int, ppm: int, amount: int, least: int = 0) -> int:
    if not amount or not (fixed or ppm):
        return 0
    return max(fixed + amount * ppm // MILLION, least)
