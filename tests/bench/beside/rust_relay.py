"""rust-nostr's relay on LMDB, as the wheel nostr-sdk has it: a process of its own.

    python rust_relay.py FOLDER

It writes its port, and runs until it is ended. Its limits stand above what is measured. It runs
with the wheel's version 0.44 in an environment of its own, and with 0.45.
"""

import asyncio
import sys
from typing import Any

import nostr_sdk
from nostr_sdk import RateLimit, uniffi_set_event_loop

_NO_LIMIT = 100_000_000
_MOST_RESULTS = 5000


async def serve(folder: str) -> None:
    uniffi_set_event_loop(asyncio.get_running_loop())
    relay = await (_relay(folder) if hasattr(nostr_sdk, "LocalRelayBuilder") else _older(folder))
    await relay.run()
    url = relay.url()
    text = str(await url if asyncio.iscoroutine(url) else url)
    print(text.rstrip("/").rpartition(":")[2], flush=True)
    await asyncio.Event().wait()


async def _relay(folder: str) -> Any:
    database = await nostr_sdk.NostrLmdb.open(folder)
    builder = nostr_sdk.LocalRelayBuilder().database(database)
    return _unlimited(builder).max_filter_limit(_MOST_RESULTS).build()


async def _older(folder: str) -> Any:
    database = nostr_sdk.NostrDatabase.lmdb(folder)  # type: ignore[attr-defined]
    if asyncio.iscoroutine(database):
        database = await database
    builder = nostr_sdk.RelayBuilder().database(database)  # type: ignore[attr-defined]
    builder = _unlimited(builder).default_filter_limit(500).max_filter_limit(_MOST_RESULTS)
    return nostr_sdk.LocalRelay(builder)  # type: ignore[call-arg]


def _unlimited(builder: Any) -> Any:
    rate = RateLimit(max_reqs=1000, notes_per_minute=_NO_LIMIT)
    return builder.rate_limit(rate).max_connections(10_000)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
