"""`farthing audit`: the ledger added up against receipts and events."""

from argparse import ArgumentParser

from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import audit as run  # noqa: F401


def add_arguments(parser: ArgumentParser) -> None:
    """There is nothing to choose."""
