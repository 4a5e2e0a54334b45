"""A job's arguments, each `--NAME value`; one that is asked for and not given is an error."""

from argparse import ArgumentParser
from collections.abc import Sequence


def getResolvedOptions(argv: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    parser = ArgumentParser()
    for name in names:
        parser.add_argument(f"--{name}", required=True)
    return vars(parser.parse_known_args(argv[1:])[0])
