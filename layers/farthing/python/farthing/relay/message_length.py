"""The limit of a message's length, in each protocol."""

from farthing.nostr.messages import Prefix, Refused


class TooLong(Refused):
    """A message above the limit of length."""

    def __init__(self, most: int) -> None:
        super().__init__(Prefix.INVALID, f"message over {most} bytes")


def check_length(most: int, frame: str | bytes) -> None:
    """Check the length after parsing, because the answer to a too long message must name its id."""
    if is_too_long(most, frame):
        raise TooLong(most)


def is_too_long(most: int, frame: str | bytes) -> bool:
    return len(frame) > most or (isinstance(frame, str) and len(frame.encode()) > most)
