"""Memory of the server over many REQ and CLOSE cycles: it must not grow with their number.

python -m tests.bench.memory_req_close [--cycles 100000] [--connections 4]
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

import aiohttp

from tests.e2e.relay_process import RelayProcess

AT_ONCE = 25


async def cycle(url: str, name: str, cycles: int, progress: list[int]) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        for start in range(0, cycles, AT_ONCE):
            names = [f"{name}-{number}" for number in range(start, min(start + AT_ONCE, cycles))]
            for each in names:
                filter = {"kinds": [1, 7], "#t": [each], "limit": 10}
                await socket.send_str(json.dumps(["REQ", each, filter]))
                await socket.send_str(json.dumps(["CLOSE", each]))
            left = len(names)
            while left:
                frame = await socket.receive_json()
                left -= frame[0] == "EOSE"
            progress[0] += len(names)


async def report(relay: RelayProcess, progress: list[int], cycles: int) -> None:
    began, step, shown = time.monotonic(), max(1, cycles // 10), 0
    while True:
        if progress[0] >= shown:
            seconds = time.monotonic() - began
            print(f"{progress[0]:>9} cycles  {seconds:7.1f} s  {relay.memory_kb() / 1024:7.1f} MiB")
            shown += step
        await asyncio.sleep(0.05)


async def measure(relay: RelayProcess, cycles: int, connections: int) -> None:
    progress = [0]
    reporting = asyncio.create_task(report(relay, progress, cycles))
    share = cycles // connections
    await asyncio.gather(
        *(cycle(relay.url, f"c{number}", share, progress) for number in range(connections))
    )
    reporting.cancel()
    print(f"{progress[0]:>9} cycles, connections closed  {relay.memory_kb() / 1024:7.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        relay = RelayProcess(Path(folder) / "data", price_per_byte=0, requests_per_second=0).start()
        try:
            asyncio.run(measure(relay, given.cycles, given.connections))
        finally:
            relay.stop()
        relay.check_log()


if __name__ == "__main__":
    main()
