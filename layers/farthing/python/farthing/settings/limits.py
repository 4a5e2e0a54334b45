"""Settings of limits."""

from dataclasses import dataclass

from farthing.settings.declaring import setting


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Limits:
    """Limits of one message, one event, one filter and one request."""

    max_message_length: int = setting(131072, "Largest WebSocket message in bytes")
    max_subscriptions: int = setting(50, "Number of open subscriptions of one connection")
    max_filters: int = setting(20, "Number of filters in one REQ or COUNT")
    max_filter_values: int = setting(
        2000, "Number of values in all lists of all filters of one request"
    )
    max_live_values: int = setting(
        10000, "Number of index keys of all open subscriptions of one connection"
    )
    max_live_bytes: int = setting(
        262144, "Bytes of the filters, as JSON, of all open subscriptions of one connection"
    )
    max_parsed_bytes: int = setting(
        16 * 1024 * 1024,
        "Estimated bytes of memory in which one process keeps parsed filters of requests",
    )
    max_limit: int = setting(
        5000, "Number of events that one filter returns at most; a larger `limit` is lowered"
    )
    default_limit: int = setting(500, "Number of events that a filter without `limit` returns")
    max_event_tags: int = setting(2500, "Number of tags of one event")
    max_free_targets: int = setting(
        2500,
        "Number of targets of a deletion (kind 5) that are looked up. A deletion is free if it"
        " deletes an event that its author has stored here.",
    )
    max_content_length: int = setting(102400, "Number of characters of an event's content")
    created_at_past: int = setting(
        0, "Seconds by which an event's `created_at` may lie in the past; 0 is any number"
    )
    created_at_future: int = setting(
        900, "Seconds by which an event's `created_at` may lie in the future"
    )
    ephemeral_past: int = setting(
        3600,
        "Seconds by which `created_at` of an ephemeral event that a purse pays for may lie in the"
        " past; its id is remembered for as long",
    )
    max_scan: int = setting(
        50000,
        "Number of index entries that all filters of one request together may read before it is"
        " refused",
    )
    light_scan: int = setting(
        1000,
        "Number of index entries that a request may read before it counts as large; on one machine"
        " few large requests run at a time",
    )
    req_seconds: int = setting(
        20, "Seconds after which a REQ or COUNT that is not answered yet is closed"
    )
    changes_seconds: int = setting(
        20, "Seconds after which one CHANGES answer ends; the client continues from its end"
    )
    search: bool = setting(
        True, "Whether the local server keeps a full-text index and answers searches (NIP-50)"
    )
    max_search_hits: int = setting(
        1000, "Hits of a search that are looked up before the filter's other fields decide"
    )
    max_removed_at_once: int = setting(
        2000,
        "Events that one call removes for a ban or a request to vanish; later calls remove others",
    )
    max_removed_before_ok: int = setting(
        200,
        "Events that are removed before the OK to a request to vanish; later calls remove others",
    )
    max_auth_keys: int = setting(20, "Number of keys that one connection may authenticate")
    max_syncs: int = setting(8, "Number of open negentropy syncs of one connection")
    max_sync_events: int = setting(1_000_000, "Number of events in one negentropy sync")
    sync_frame: int = setting(
        60_000, "Bytes of one negentropy message, before hex encoding doubles them"
    )
    sync_seconds: int = setting(300, "Seconds after which an idle negentropy sync is closed")
    count_exactly: int = setting(1000, "Number of events up to which COUNT is exact")
