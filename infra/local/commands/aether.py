"""`farthing aether`: the agent's own keys in Aether."""

from argparse import ArgumentParser, Namespace

from farthing.relay.aether.owner import derive_keys
from farthing.settings import Settings
from infra.local.commands.terminal import row
from infra.local.server.identity import with_identity

ERRORS: tuple[type[Exception], ...] = ()


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    about = "show the public keys that are derived from the owner's key"
    actions.add_parser("key", help=about, description=about)


def run(_arguments: Namespace, settings: Settings) -> int:
    keys = derive_keys(with_identity(settings).secret)
    row("public key", keys.pubkey)
    row("Noise key", keys.noise_pubkey)
    return 0
