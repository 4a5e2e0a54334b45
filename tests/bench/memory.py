"""Memory: what a server holds after a fifth of the REQ and CLOSE cycles, and after all of them."""

import asyncio
import tempfile
from pathlib import Path

from tests.bench.memory_req_close import cycle
from tests.bench.result import Row, at_most
from tests.e2e.relay_process import RelayProcess

GROWTH = 1.05
_CONNECTIONS = 4


def run(quick: bool) -> list[Row]:
    cycles = 5000 if quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        relay = RelayProcess(Path(folder) / "data", price_per_byte=0, requests_per_second=0).start()
        try:
            early = asyncio.run(_memory_after(relay, "early", cycles // 5))
            late = asyncio.run(_memory_after(relay, "late", cycles - cycles // 5))
        finally:
            relay.stop()
        relay.check_log()
    name = f"memory: after {cycles:,} REQ/CLOSE cycles"
    against = f"MiB after {cycles // 5:,}"
    return [Row(name, late, "MiB", early, against, at_most(GROWTH))]


async def _memory_after(relay: RelayProcess, name: str, cycles: int) -> float:
    share, progress = cycles // _CONNECTIONS, [0]
    await asyncio.gather(
        *(cycle(relay.url, f"{name}-{number}", share, progress) for number in range(_CONNECTIONS))
    )
    return relay.memory_kb() / 1024
