"""`farthing audit`: check the ledger against receipts and events."""

from argparse import ArgumentParser

from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import audit as run  # noqa: F401


def add_arguments(parser: ArgumentParser) -> None:
    """The command has no arguments."""
