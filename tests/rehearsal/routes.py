"""The routing table of the deployed agent: from what it knows of others, by the deployed Glue job,
into the deployed table, and put to use. The other agents run on this machine."""

import gzip
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import prepare_payment, send_payment, terms_from_information, utc_now
from farthing.ilp.packet import Fulfill, Reject
from farthing.nostr.events import parse_event
from farthing.ports.hosts import ANYWHERE
from tests.e2e.authors import Author
from tests.e2e.paying import PER_BYTE, command, information
from tests.e2e.relay_process import RelayProcess
from tests.rehearsal.deployed import PREFIX, Deployed, until
from tests.rehearsal.places import CACHE, HERE, environment, free_port, run
from tests.rehearsal.transcript import Transcript

_JOB = f"{PREFIX}routes"
_FOLDER = CACHE / "glue"
_RETRIED = 240  # two attempts at a relay that is down, on a machine with other work
_KNOWN_SECONDS = 30  # functions remember routes and peers for a while
_CREDIT = 10**9


@contextmanager
def agent(name: str) -> Iterator[RelayProcess]:
    """An agent of somebody else, on this machine."""
    data = CACHE / name
    shutil.rmtree(data, ignore_errors=True)
    relay = RelayProcess(
        data, port=free_port(), ilp_address=f"g.agent.{name}", price_per_byte=PER_BYTE,
        upkeep_seconds=0, peer_cache_seconds=0, peer_with_follows=1,
    )  # fmt: skip
    try:
        yield relay.start()
    finally:
        relay.kill()


def _at(relay: RelayProcess, *arguments: str) -> str:
    """A command at one of them."""
    done = command(relay, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def become_peers(
    relay: Deployed, bob: RelayProcess, carol: RelayProcess, transcript: Transcript
) -> None:
    """Bob follows Carol. The operator follows Bob, upkeep reads his relay and proposes him, the
    operator agrees. Who is followed gives an account in turn."""
    _at(bob, "follow", carol.pubkey, "--relay", carol.url)
    _at(carol, "peers", "add", "bob", "--pubkey", bob.pubkey, "--max-balance", str(_CREDIT))
    _at(bob, "upkeep")
    relay.farthing("follow", bob.pubkey, "--relay", bob.url)
    done = relay.invoke("upkeep", {})
    transcript.say(f"farthing --cloud follow {bob.pubkey[:16]}...; upkeep:")
    transcript.say("\n".join(f"  {result}" for result in done.values()))
    assert "failed" not in done.values()
    (peer,) = [line.split()[0] for line in relay.farthing("peers", "list").splitlines()
               if "g.agent.bob" in line]  # fmt: skip
    relay.farthing("peers", "set", peer, "--active")
    _at(bob, "peers", "add", "deployed", "--pubkey", relay.pubkey, "--max-balance", str(_CREDIT))


@dataclass(frozen=True)
class _Job:
    """The deployed job: what it runs, with what, and as whom."""

    script: Path
    library: Path
    arguments: dict[str, str]
    role: str


def rebuilds_routes(relay: Deployed, transcript: Transcript) -> None:
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    job = _job(relay)
    source, lines = _export(relay, job)
    transcript.say(f"exported {lines} items of {PREFIX}events to {job.arguments['--EXPORT_TO']}")
    given = {
        **{name: value for name, value in job.arguments.items() if name.isupper()},
        "--JOB_NAME": _JOB,
        "--SOURCE": str(source),
        "--SOURCE_FORMAT": "dynamodb",
    }
    said = run(
        [sys.executable, str(job.script), *(word for pair in given.items() for word in pair)],
        cwd=_FOLDER,
        env=environment(
            # It may do no more than Glue would let it.
            **relay.credentials_of(job.role), AWS_ENDPOINT_URL=relay.emulator,
            PYTHONPATH=os.pathsep.join([str(job.library), str(HERE / "stand_in")]),
        ),
    )  # fmt: skip
    report = [line for line in said.splitlines() if re.match(r"\d+ \w+|refused: ", line)]
    assert "2 routes" in report, said
    transcript.say("\n".join(report))


def _job(relay: Deployed) -> _Job:
    found = relay.client("glue").get_job(JobName=_JOB)["Job"]
    arguments: dict[str, str] = found["DefaultArguments"]
    return _Job(
        _fetch(relay, found["Command"]["ScriptLocation"], _FOLDER / "job.py"),
        _fetch(relay, arguments["--extra-py-files"], _FOLDER / "library.zip"),
        arguments,
        found["Role"],
    )


def jobs_know_the_owner(relay: Deployed) -> None:
    """The key is made in one stack and told to another: also when it has changed."""
    found = relay.client("glue").get_job(JobName=_JOB)["Job"]
    assert found["DefaultArguments"]["--OWNER"] == relay.pubkey


def _fetch(relay: Deployed, url: str, target: Path) -> Path:
    place = urlsplit(url)
    relay.client("s3").download_file(place.netloc, place.path.lstrip("/"), str(target))
    return target


def _export(relay: Deployed, job: _Job) -> tuple[Path, int]:
    """Put the table where an export of it would be, in the form that it would have, and take it
    from there."""
    items = relay.items("events")
    lines = "".join(json.dumps({"Item": item}) + "\n" for item in items)
    url = f"{job.arguments['--EXPORT_TO']}/AWSDynamoDB/rehearsal/data/part.json.gz"
    place = urlsplit(url)
    relay.client("s3").put_object(
        Bucket=place.netloc, Key=place.path.lstrip("/"), Body=gzip.compress(lines.encode())
    )
    folder = _FOLDER / "data"
    folder.mkdir()
    _fetch(relay, url, folder / "part.json.gz")
    return folder, len(items)


def finds_its_way(
    relay: Deployed, bob: RelayProcess, carol: RelayProcess, transcript: Transcript
) -> None:
    """The table is read back by the operator, and packets go by it: to Carol, by way of Bob."""
    explained = relay.farthing("routes", "explain", "g.agent.carol.somebody")
    assert f"claimed by {carol.pubkey}" in explained
    assert bob.pubkey in explained
    transcript.say(explained)

    author = Author()
    event = author.event("by way of the deployed agent")
    reply = until(
        "a packet is forwarded", lambda: _forwarded(relay, carol, author, event), _KNOWN_SECONDS
    )
    transcript.say(f"a packet for g.agent.carol went by us: {reply.fulfillment.hex()[:32]}...")
    for name, ledger, peer in (("Bob", bob, "deployed"), ("Carol", carol, "bob")):
        rows = [line.split() for line in _at(ledger, "peers", "list").splitlines()]
        (owed,) = [row[1] for row in rows if row[0] == peer]
        transcript.say(f"in {name}'s ledger {peer} owes {owed}")


def follows_and_broadcasts(
    relay: Deployed, bob: RelayProcess, carol: RelayProcess, transcript: Transcript
) -> None:
    """Bob's note is cached by the deployed agent. The owner's note is paid for at Bob's relay, and
    at Carol's when it is up again: the queue wakes the outbox, and no schedule is waited for."""
    _at(bob, "post", "--owner", "from Bob's own relay")
    looked = relay.invoke("feeds", {})
    transcript.say(f"feeds: {looked}")
    with relay.connected() as client:
        notes = client.ask({"authors": [bob.pubkey], "kinds": [1]})
    assert [note["content"] for note in notes] == ["from Bob's own relay"]
    transcript.say("Bob's note is read at the deployed relay")

    carol.kill()
    mentions = [word for each in (bob, carol) for word in ("--tag", f"p={each.pubkey}")]
    relay.farthing("post", "--owner", "to both of you", *mentions)
    with relay.connected() as client:
        (note,) = client.ask({"authors": [relay.pubkey], "kinds": [1], "limit": 1})
    relay.farthing("broadcast", note["id"], "--wait", "0")

    def told(what: str) -> str | None:
        said = relay.farthing("broadcasts", note["id"])
        return said if what in said else None

    transcript.say(until("one of two relays has the note", lambda: told("1 of 2 stored")))
    carol.start()
    transcript.say(until("the other has it as well", lambda: told("2 of 2 stored"), _RETRIED))


def _forwarded(
    relay: Deployed, to: RelayProcess, author: Author, event: dict[str, Any]
) -> Fulfill | None:
    terms = terms_from_information(information(to))
    secret, parsed = bytes.fromhex(author.secret), parse_event(event)
    price = prepare_payment(parsed, secret, terms, utc_now()).amount
    fees = price // 50 + 2  # more than both of us keep
    payment = prepare_payment(parsed, secret, terms, utc_now(), price + fees)
    reply = send_payment(HttpOutbound(ANYWHERE), relay.terms().endpoint, relay.token, payment)
    if isinstance(reply, Reject):
        assert reply.code == "F02", reply  # the function still has the table from before
        return None
    return reply
