"""Settings of connections."""

from dataclasses import dataclass

from farthing.settings.declaring import setting


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Connections:
    """Limits of connections: rates, buffers, and how long their records are kept."""

    requests_per_second: int = setting(
        100,
        "Number of WebSocket messages per second of one connection, and of HTTP requests per second"
        " of one address, in the long run; 0 is any number",
    )
    request_burst: int = setting(
        1000, "Number of messages or requests that may come at once, above the rate per second"
    )
    address_messages_per_second: int = setting(
        1000,
        "Number of WebSocket messages per second from one address, over all its connections to the"
        " local server, in the long run; 0 is any number",
    )
    address_message_burst: int = setting(
        5000,
        "Number of WebSocket messages that may come at once from one address, above its rate per"
        " second",
    )
    max_send_buffer: int = setting(
        8 * 1024 * 1024, "Bytes that wait for one slow client before it is disconnected"
    )
    max_send_buffers: int = setting(
        64 * 1024 * 1024,
        "Bytes that wait for all slow clients together before the slowest are disconnected",
    )
    max_connections: int = setting(5000, "Number of connections to the local server at a time")
    max_connections_per_address: int = setting(
        200,
        "Number of connections to the local server from one address at a time, except from this"
        " machine; 0 is any number",
    )
    request_seconds: int = setting(
        60,
        "Seconds in which a request to the local server must arrive, and that an idle HTTP"
        " connection stays open",
    )
    connection_seconds: int = setting(
        7500,
        "Seconds for which the records of a connection are kept; API Gateway ends connections after"
        " two hours",
    )
