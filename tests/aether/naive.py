"""The rules once more, written as plainly as possible, for comparison."""

import ipaddress
import json
from typing import Any

from blake3 import blake3
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def naive_id(event: dict[str, Any]) -> str:
    out = bytearray()
    out += bytes.fromhex(event["pubkey"])
    out += event["created_at"].to_bytes(8, "big")
    out += event["kind"].to_bytes(2, "big")
    out += len(event["tags"]).to_bytes(2, "big")
    for tag in event["tags"]:
        out += len(tag[0]).to_bytes(1, "big")
        out += tag[0].encode("ascii")
        out += (len(tag) - 1).to_bytes(2, "big")
        for value in tag[1:]:
            out += len(value.encode("utf-8")).to_bytes(2, "big")
            out += value.encode("utf-8")
    out += event["content"].encode("utf-8")
    return blake3(bytes(out)).hexdigest()


def naive_match(event: dict[str, Any], filter: dict[str, Any]) -> bool:
    def has(key: str, wanted: list[str]) -> bool:
        for tag in event["tags"]:
            for value in tag[1:]:
                if tag[0] == key and value in wanted:
                    return True
        return False

    for field, wanted in filter.items():
        if field == "ids" and event["event_id"] not in wanted:
            return False
        if field == "authors" and event["pubkey"] not in wanted:
            return False
        if field == "pubkey_prefixes" and not any(event["pubkey"].startswith(p) for p in wanted):
            return False
        if field == "kinds" and event["kind"] not in wanted:
            return False
        if field == "since" and event["created_at"] < int(wanted):
            return False
        if field == "until" and event["created_at"] > int(wanted):
            return False
        if field == "tags":
            groups = wanted.items() if isinstance(wanted, dict) else wanted
            if not all(has(key, values) for key, values in groups):
                return False
        if field.startswith("#") and not has(field[1:], wanted):
            return False
    return True


def naive_chain(
    chain: list[dict[str, Any]], *, owner: str, author: str, kind: int, now_ns: int, ip: str | None
) -> bool:
    """Whether a chain of well-formed tokens allows the write."""
    if not 1 <= len(chain) <= 8 or len(json.dumps(chain)) > 8192:
        return False
    path = f"relay:events:write:{kind}:"
    expected, width, seen = owner, "", []
    for token in chain:
        unsigned = {name: value for name, value in token.items() if name != "sig"}
        text = json.dumps(unsigned, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(token["issuer"])).verify(
                bytes.fromhex(token["sig"]), blake3(text.encode()).digest()
            )
        except InvalidSignature:
            return False
        held = token["capability"] + ":"
        if token["issuer"] != expected or not held.startswith(width) or text in seen:
            return False
        if not path.startswith(held):
            return False
        caveats = token["caveats"]
        if not int(caveats.get("not_before", 0)) <= now_ns <= int(caveats.get("not_after", 2**64)):
            return False
        if "ip" in caveats:
            networks = caveats["ip"] if isinstance(caveats["ip"], list) else [caveats["ip"]]
            if ip is None or not any(
                ipaddress.ip_address(ip) in ipaddress.ip_network(network) for network in networks
            ):
                return False
        expected, width = token["subject"], held
        seen.append(text)
    return expected == author
