"""NIP-01's matching on plain dicts, one loop after another: what clever code is compared with."""

from typing import Any


def naive_match(event: dict[str, Any], filter: dict[str, Any]) -> bool:
    if "ids" in filter and event["id"] not in filter["ids"]:
        return False
    if "authors" in filter and event["pubkey"] not in filter["authors"]:
        return False
    if "kinds" in filter and event["kind"] not in filter["kinds"]:
        return False
    if "since" in filter and not filter["since"] <= event["created_at"]:
        return False
    if "until" in filter and not event["created_at"] <= filter["until"]:
        return False
    for key in filter:
        if key[0] != "#":
            continue
        found = False
        for tag in event["tags"]:
            if len(tag) >= 2 and tag[0] == key[1] and tag[1] in filter[key]:
                found = True
        if not found:
            return False
    return True
