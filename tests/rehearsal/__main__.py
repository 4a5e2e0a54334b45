"""The rehearsal from beginning to end. Whatever happens on the way, nothing is left running."""

import shutil
import signal
import sys
import traceback
from contextlib import ExitStack
from typing import NoReturn

from tests.rehearsal import cli, drills, emulator, protocols, routes, suite
from tests.rehearsal.deployed import Deployed, Patient
from tests.rehearsal.gate import Gate
from tests.rehearsal.places import CACHE, free_port
from tests.rehearsal.transcript import Transcript

_NEW_PRICE = 25
_CERTIFICATE = f"arn:aws:acm:us-east-1:{emulator.ACCOUNT}:certificate/rehearsal"


def rehearse(transcript: Transcript, running: ExitStack) -> None:
    with transcript.step("Install the emulator and the CDK CLI at their pinned versions"):
        emulator.install()
        cli.install()

    background = Patient()
    running.callback(background.stop)
    aws = emulator.Emulator(free_port())
    with transcript.step("Start the emulator, which checks every call against policies"):
        gate = Gate(background, aws.url)
        running.callback(gate.close)
        running.callback(aws.stop)
        aws.start(gate.url)
        transcript.say(f"on {aws.url}, its log in {aws.log.relative_to(CACHE.parents[1])}")

    cdk = cli.Cdk(aws.url)
    with transcript.step(f"Bootstrap and deploy, by the CDK CLI {cdk.version()}"):
        cdk.bootstrap()
        relay = Deployed(aws.url, cdk.deploy(), background)
        transcript.say(f"{relay.resources()} resources in {len(relay.stacks())} stacks")

    with transcript.step("The relay says who it is (NIP-11, kind 10032)"):
        suite.says_who_it_is(relay, transcript)
    with transcript.step("What is not paid is refused at every door"):
        suite.refuses_what_is_not_paid(relay, transcript)
    with transcript.step("The operator adds a peer"):
        suite.a_peer_is_added(relay, transcript)
    with transcript.step("An event is stored by ILP and read back"):
        suite.stores_what_is_paid(relay, transcript)
    with transcript.step("A wallet fills a purse (STREAM), and a client writes from it"):
        suite.pays_from_a_purse(relay, transcript)
    with transcript.step("An Aether event is paid by ILP and read by SSE"):
        protocols.speaks_aether(relay, transcript)
    with transcript.step("Subscribers are told, live"):
        suite.tells_subscribers(relay, transcript)
    with transcript.step("CHANGES: numbers without gaps, and live"):
        suite.numbers_changes(relay, transcript)
    with transcript.step("NEG: others have what we have"):
        suite.is_synced_with(relay, transcript)
    with transcript.step("Each verb by its own function"):
        suite.serves_each_verb_by_its_own_function(relay, transcript)
    with transcript.step("No function can do what is not its business"):
        suite.keeps_functions_in_bounds(relay, transcript)

    bob = running.enter_context(routes.agent("bob"))
    carol = running.enter_context(routes.agent("carol"))
    with transcript.step("Follow = peer: we follow Bob, who follows Carol"):
        routes.become_peers(relay, bob, carol, transcript)
    with transcript.step("A paid subscription runs out of credit and is resumed without a gap"):
        protocols.sells_subscriptions(relay, bob, transcript)
    poison = drills.Poison(relay)
    with transcript.step("Drill: a record that poisons the stream"):
        poison.put(transcript)
    with transcript.step("The deployed Glue job makes routes of what the tables hold"):
        routes.rebuilds_routes(relay, transcript)
    with transcript.step("Routes are read back, and packets go by them"):
        routes.finds_its_way(relay, bob, carol, transcript)
    with transcript.step("Follow = subscribe, and a broadcast to two of whom one is down"):
        routes.follows_and_broadcasts(relay, bob, carol, transcript)
    with transcript.step("Drill: and the feed goes on"):
        poison.check(transcript)
    with transcript.step("Drill: a subscriber vanishes"):
        drills.a_client_vanishes(relay, transcript)
    with transcript.step("Drill: the tables are throttled"):
        drills.tables_are_throttled(relay, gate, transcript)
    with transcript.step("Drill: the budget is spent"):
        drills.the_budget_is_spent(relay, transcript)
    before = relay.pubkey
    with transcript.step("Drill: a new price, key and domain are deployed in the midst of traffic"):
        drills.rotate_key(relay, transcript)
        drills.deploys_during_traffic(
            relay, cdk, transcript, price_per_byte=_NEW_PRICE, key_version=2,
            free_pubkeys=before,  # whose own events are stored without payment
            domain="relay.example", certificate_arn=_CERTIFICATE,
        )  # fmt: skip
    with transcript.step("The new price is the price, and the relay is another agent"):
        assert relay.pubkey != before
        suite.says_who_it_is(relay, transcript, per_byte=_NEW_PRICE)
        routes.jobs_know_the_owner(relay)
        suite.books_balance(relay, transcript)

    with transcript.step("Destroy"):
        cdk.destroy()
        assert relay.stacks() == []
        assert relay.client("dynamodb").list_tables()["TableNames"] == []


def _stopped(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    # Also SIGINT, which a shell has its background jobs ignore.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stopped)
    for left in ("operator", "synced", "cdk.out"):
        shutil.rmtree(CACHE / left, ignore_errors=True)
    transcript = Transcript(CACHE / "transcript.txt")
    try:
        with ExitStack() as running:
            rehearse(transcript, running)
        transcript.end("The rehearsal went well")
    except KeyboardInterrupt:
        transcript.end("Stopped")
        return 130
    except Exception:
        traceback.print_exc()
        transcript.end("The rehearsal failed")
        return 1
    finally:
        transcript.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
