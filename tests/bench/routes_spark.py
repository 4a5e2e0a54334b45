"""Rebuilding the routing table with Spark in local mode on two cores, and how it grows; the same
file in networkx beside it.

Each measurement is a process of its own, so that peak memory is its own too.
"""

import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.bench.result import Row, at_most
from tests.e2e.relay_process import ROOT

_FOLLOWS = 20  # of each agent
_HUBS = 3  # the larger, the more of all follows go to a few agents
_PARTITIONS = 8
_NOW = 1_800_000_000
_WARM_UP = 20_000
_GROWTH = 1.15


def run(quick: bool) -> list[Row]:
    small, large = (50_000, 500_000) if quick else (1_000_000, 10_000_000)
    with TemporaryDirectory(prefix="farthing-routes-") as folder:
        first, second = (_child("spark", edges, folder) for edges in (small, large))
        plain = _child("networkx", small, folder)
    growth, of_processor = (
        math.log(second[what] / first[what]) / math.log(second["edges"] / first["edges"])
        for what in ("seconds", "cpu")
    )
    return [
        *(row for found in (first, second) for row in _spark_rows(found)),
        Row("routes: growth exponent", growth, "", target=at_most(_GROWTH),
            note=f"of processor time {of_processor:.2f}, whatever else the machine did"),
        Row(f"routes: rebuild, {_size(small)} edges, beside networkx", first["seconds"], "s",
            against=plain["seconds"], against_name="s networkx",
            note=f"networkx holds {plain['mib']:.0f} MiB and applies none of the poisoning rules"),
    ]  # fmt: skip


def _spark_rows(found: dict[str, Any]) -> list[Row]:
    name = f"routes: rebuild, {_size(found['edges'])} edges"
    note = (
        f"{found['routes']} routes, {found['rounds']} rounds, read from JSON lines, "
        f"{found['cpu']:.0f} s of processor time"
    )
    return [
        Row(name, found["seconds"], "s", note=note),
        Row(f"{name}, peak memory", found["mib"], "MiB", note="driver: JVM and Python"),
    ]


def _size(edges: int) -> str:
    return f"{edges / 1e6:.3g} M"


def _child(what: str, edges: int, folder: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.routes_spark", what, str(edges), folder],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


# In the child


def _write_graph(spark: Any, edges: int, folder: str) -> str:
    """Events as `farthing export` writes them: two for each agent."""
    from pyspark.sql import functions as F

    path = f"{folder}/{edges}"
    if Path(path, "_SUCCESS").exists():
        return path
    agents = edges // _FOLLOWS
    key = F.sha2(F.col("id").cast("string"), 256)
    chosen = F.transform(
        F.sequence(F.lit(1), F.lit(_FOLLOWS)),
        # Uniform in (0, 1] from a hash, raised: a power law, the same in every run.
        lambda n: F.pow((F.abs(F.xxhash64("id", n)) % 2**30 + 1) / 2.0**30, F.lit(_HUBS)) * agents,
    )
    followed = F.transform(
        chosen, lambda at: F.array(F.lit("p"), F.sha2(F.floor(at).cast("string"), 256))
    )
    about = F.array(
        F.array(F.lit("ilp_address"), F.concat(F.lit("g.agent.a"), F.col("id").cast("string"))),
        F.array(F.lit("fee"), (F.abs(F.xxhash64("id")) % 100).cast("string")),
    )
    nodes = spark.range(0, agents + 1, 1, _PARTITIONS)
    events = nodes.select("id", F.lit(3).alias("kind"), followed.alias("tags")).unionByName(
        nodes.select("id", F.lit(10032).alias("kind"), about.alias("tags"))
    )
    line = F.struct(
        F.sha2(F.concat_ws("/", "id", "kind"), 256).alias("id"), key.alias("pubkey"),
        F.lit(_NOW).alias("created_at"), "kind", "tags", F.lit("").alias("content"),
        F.lit("0" * 128).alias("sig"),
    )  # fmt: skip
    events.select(F.to_json(line)).write.mode("overwrite").text(path)
    return path


def _source() -> str:
    from hashlib import sha256

    return sha256(b"7").hexdigest()


def _in_spark(edges: int, folder: str) -> dict[str, Any]:
    from glue_jobs.rebuild_routes import rebuild
    from glue_jobs.rules import Options
    from glue_jobs.session import local_session

    spark = local_session(cores=2, memory="2g", partitions=_PARTITIONS)
    options = Options(now=_NOW)
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    for size in (_WARM_UP, edges):
        path = _write_graph(spark, size, folder)
        started, processor = time.monotonic(), _processor_seconds(jvm)
        _, report = rebuild(spark, [path], [_source()], options, _say(started))
        seconds, processor = time.monotonic() - started, _processor_seconds(jvm) - processor
    mib = _peak_mib(jvm) + _own_peak_mib()
    return {"edges": report.edges, "seconds": seconds, "mib": mib, "routes": report.routes,
            "rounds": report.rounds, "cpu": processor}  # fmt: skip


def _say(started: float) -> Callable[[str, int, int], None]:
    def say(stage: str, done: int, total: int) -> None:
        print(f"{time.monotonic() - started:7.1f} s {done}/{total} {stage}", file=sys.stderr)

    return say


def _in_networkx(edges: int, folder: str) -> dict[str, Any]:
    import networkx
    import orjson

    started = time.monotonic()
    fees, follows = {}, {}
    for file in sorted(Path(folder, str(edges)).glob("part-*")):
        with file.open("rb") as lines:
            for event in map(orjson.loads, lines):
                tags = event["tags"]
                if event["kind"] == 3:
                    follows[event["pubkey"]] = [tag[1] for tag in tags]
                else:
                    fees[event["pubkey"]] = int(tags[1][1])
    graph = networkx.DiGraph()
    source = _source()
    for key, followed in follows.items():
        fee = 0 if key == source else fees[key]
        graph.add_weighted_edges_from((key, each, fee) for each in followed if each in fees)
    fee, _ = networkx.single_source_dijkstra(graph, source)
    seconds = time.monotonic() - started
    return {"edges": graph.number_of_edges(), "seconds": seconds, "mib": _own_peak_mib(),
            "routes": len(fee) - 1}  # fmt: skip


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _own_peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    measured = {"spark": _in_spark, "networkx": _in_networkx}[sys.argv[1]]
    print(json.dumps(measured(int(sys.argv[2]), sys.argv[3])))
