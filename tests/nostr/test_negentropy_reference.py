"""Negentropy against other implementations: the same sets give the same messages, byte for byte.

The relay of nostr-sdk runs wherever the development dependencies are. The reference JavaScript
runs where npm `applesauce-relay` is: `npm install --prefix .cache applesauce-relay@6.2.1` in the
repository, or FARTHING_NODE_MODULES naming a node_modules directory that has it.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from farthing.nostr.negentropy import Initiator, Responder, SealedVector

Item = tuple[int, bytes]

HERE = Path(__file__).resolve().parent
NODE = shutil.which("node")
NODE_MODULES = Path(
    os.environ.get("FARTHING_NODE_MODULES") or HERE.parents[1] / ".cache" / "node_modules"
).absolute()
# What nostr-sdk's relay sets for itself.
RELAY_FRAME_LIMIT = 60_000


def sessions() -> list[tuple[list[Item], list[Item], int]]:
    rnd = Random(1)
    return [session(rnd) for _ in range(150)]


def session(rnd: Random) -> tuple[list[Item], list[Item], int]:
    count = rnd.choice([0, 10, 31, 32, 33, 100, 700, 2500])
    span = rnd.choice([1, 3, 1000, 50_000_000])
    since = rnd.choice([0, 1_700_000_000])
    items = [(since + rnd.randrange(span), rnd.randbytes(32)) for _ in range(count)]
    ours, theirs = (
        [item for item in items if rnd.random() < share]
        for share in rnd.choice([(1, 1), (0.5, 0.5), (0.95, 0.95), (0, 1), (1, 0), (1, 0.99)])
    )
    return ours, theirs, rnd.choice([0, 4096, 60_000])


def converse(ours: list[Item], theirs: list[Item], limit: int) -> dict[str, list[str]]:
    initiator = Initiator(SealedVector.seal(ours), limit)
    responder = Responder(SealedVector.seal(theirs), limit)
    trace, have, need = [], [], []
    message: bytes | None = initiator.initiate()
    while message is not None:
        reply = responder.reconcile(message)
        trace += [message.hex(), reply.hex()]
        message, more_have, more_need = initiator.reconcile(reply)
        have += [event_id.hex() for event_id in more_have]
        need += [event_id.hex() for event_id in more_need]
    return {"trace": trace, "have": have, "need": need}


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.skipif(
    not (NODE_MODULES / "applesauce-relay").is_dir(),
    reason="applesauce-relay is in neither FARTHING_NODE_MODULES nor .cache/node_modules",
)
def test_sessions_are_those_of_the_reference_javascript() -> None:
    asked = sessions()
    lines = [
        json.dumps(
            {
                "ours": [(timestamp, event_id.hex()) for timestamp, event_id in ours],
                "theirs": [(timestamp, event_id.hex()) for timestamp, event_id in theirs],
                "limit": limit,
            }
        )
        for ours, theirs, limit in asked
    ]
    done = subprocess.run(
        [NODE or "node", str(HERE / "negentropy_oracle.mjs"), str(NODE_MODULES)],
        input="\n".join(lines).encode(),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers == [converse(*session) for session in asked]


def test_responder_answers_as_the_relay_of_nostr_sdk() -> None:
    pytest.importorskip("nostr_sdk", reason="nostr-sdk is not installed")
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    asyncio.run(compare_with_relay())


async def compare_with_relay() -> None:
    import aiohttp
    from nostr_sdk import LocalRelayBuilder, RateLimit, uniffi_set_event_loop

    # nostr-sdk keeps the loop of whichever test named one before this.
    uniffi_set_event_loop(asyncio.get_running_loop())
    unlimited = RateLimit(max_reqs=100_000, notes_per_minute=1_000_000)
    relay = LocalRelayBuilder().rate_limit(unlimited).build()
    await relay.run()
    url = str(await relay.url())
    items = signed_items(2500)
    stored = list(items)[250:]
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, max_msg_size=0) as socket,
    ):
        for item in stored:
            await socket.send_str(f'["EVENT",{items[item]}]')
            assert (await socket.receive_json())[2] is True
        responder = Responder(SealedVector.seal(stored), RELAY_FRAME_LIMIT)
        for ours in [], list(items)[:2000], stored, stored[:30], stored[::2]:
            for limit in 0, 4096:
                initiator = Initiator(SealedVector.seal(ours), limit)
                await assert_same_answers(socket, initiator, responder)
    relay.shutdown()


def signed_items(count: int) -> dict[Item, str]:
    from nostr_sdk import EventBuilder, Keys, Kind, Timestamp

    keys, rnd, items = Keys.generate(), Random(2), {}
    for number in range(count):
        when = Timestamp.from_secs(1_700_000_000 + rnd.randrange(count // 3))
        event = EventBuilder(Kind(1), str(number)).custom_created_at(when).finalize(keys)
        items[when.as_secs(), bytes.fromhex(event.id().to_hex())] = event.as_json()
    return items


async def assert_same_answers(socket, initiator: Initiator, responder: Responder) -> None:
    message: bytes | None = initiator.initiate()
    await socket.send_json(["NEG-OPEN", "x", {}, message.hex()])
    while message is not None:
        verb, _, reply = await socket.receive_json()
        assert verb == "NEG-MSG"
        assert responder.reconcile(message).hex() == reply
        message = initiator.reconcile(bytes.fromhex(reply)).message
        if message is not None:
            await socket.send_json(["NEG-MSG", "x", message.hex()])
    await socket.send_json(["NEG-CLOSE", "x"])
