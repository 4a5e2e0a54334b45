"""Settings of the process."""

from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import (
    at_most,
    check_networks,
    check_present,
    check_table_prefix,
    check_token,
    one_of,
)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Process:
    """Where the agent runs: address, data, log and metrics of its process."""

    host: str = setting("127.0.0.1", "Address that the local server listens on", check_present)
    port: int = setting(7777, "Port of the local server, for HTTP and WebSocket", at_most(65535))
    data: str = setting(
        ".farthing", "Folder in which the local server keeps all its data", check_present
    )
    workers: int = setting(8, "Number of threads in which the local server handles reads")
    readers: int | None = setting(
        None,
        "Number of processes that read for the local server; if 0, only its threads read, and if"
        " empty, there is one process for each core beyond the first, up to 2",
    )
    read_cache: int = setting(
        64 * 1024 * 1024,
        "Bytes of stored events and answers that the local server keeps in memory; 0 keeps none",
    )
    table_prefix: str = setting(
        "farthing-", "Prefix of the names of the DynamoDB tables", check_table_prefix
    )
    trusted_proxies: tuple[str, ...] = setting(
        tuple,
        "Addresses or networks of reverse proxies, comma-separated, whose `Forwarded` and"
        " `X-Forwarded-For` headers name the client's address",
        check_networks,
    )
    metrics_token: str = setting(
        "",
        "Bearer token for `GET /metrics`. If empty, only this machine may read the metrics.",
        check_token,
        secret=True,
    )
    figures_seconds: int = setting(
        300,
        "Seconds for which the operator's console shows the same figures of CloudWatch: AWS bills"
        " for each reading",
    )
    log_level: str = setting(
        "info",
        "Least level of the log lines that are written: `debug`, `info`, `warning` or `error`",
        one_of("debug", "info", "warning", "error"),
    )
    log_format: str = setting(
        "text", "Format of the log: `text`, or `json` with one object per line",
        one_of("text", "json"),
    )  # fmt: skip
    refusals_logged_per_minute: int = setting(
        60,
        "Number of refusals (events, requests, packets) that each process logs per minute, at the"
        " level `info`. More are only counted. 0 logs none.",
    )
