"""The methods of the relay management API (NIP-86). The caller has been checked to be the owner.

The commands and the operator's console use the same functions."""

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from itertools import islice
from typing import Any, NamedTuple

from farthing.context import Agent
from farthing.nostr.events import is_hex64
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.nostr.management import Call, InvalidCall, Method
from farthing.relay.moderation import rules, set_rule, unset_rule
from farthing.relay.removal import remove_author
from farthing.store.events import StoredEvent
from farthing.store.rules import Subject

_MOST_LISTED = 1000
_REPORTS_READ = 500
_REASON_MAX = 200  # strangers write reports

Run = Callable[[Agent, Call], object]


def ban_key(agent: Agent, pubkey: str, reason: str = "") -> None:
    """Refuse new events of the key, and remove its stored events."""
    if pubkey == agent.settings.pubkey:
        raise InvalidCall("the owner cannot be banned")
    unset_rule(agent, Subject.ALLOWED_KEY, pubkey)
    set_rule(agent, Subject.BANNED_KEY, pubkey, reason)
    remove_author(agent, pubkey)


def ban_event(agent: Agent, event_id: str, reason: str = "") -> None:
    unset_rule(agent, Subject.ALLOWED_EVENT, event_id)
    set_rule(agent, Subject.BANNED_EVENT, event_id, reason)
    agent.events.remove(event_id)


def allow_key(agent: Agent, pubkey: str, reason: str = "") -> None:
    """Let the key write for free. A ban ends with it."""
    unset_rule(agent, Subject.BANNED_KEY, pubkey)
    set_rule(agent, Subject.ALLOWED_KEY, pubkey, reason)


def unban(agent: Agent, value: str) -> bool:
    """Lift the ban of a key or an event. Returns whether there was one."""
    found = [
        subject
        for subject in (Subject.BANNED_KEY, Subject.BANNED_EVENT)
        if value in rules(agent).of(subject)
    ]
    for subject in found:
        unset_rule(agent, subject, value)
    return bool(found)


class Reported(NamedTuple):
    """A stored event that somebody has reported (NIP-56)."""

    event: StoredEvent
    reason: str


def reported_events(agent: Agent) -> Iterator[Reported]:
    """Reported events that the operator has not decided on, by the newest report first."""
    decided = {*rules(agent).of(Subject.BANNED_EVENT), *rules(agent).of(Subject.ALLOWED_EVENT)}
    seen: set[str] = set()
    reports = Filter(kinds=frozenset({Kind.REPORT.value}), limit=_REPORTS_READ)
    for report in agent.reader.find(reports):
        for tag in report.event.tags:
            if len(tag) > 1 and tag[0] == "e" and is_hex64(tag[1]):
                named = tag[1]
                if named in decided or named in seen:
                    continue
                seen.add(named)
                event = agent.events.get(named)
                if event is not None:
                    reason = (tag[2] if len(tag) > 2 else "") or report.event.content
                    yield Reported(event, reason[:_REASON_MAX])


def _ban_pubkey(agent: Agent, call: Call) -> bool:
    ban_key(agent, call.hex64(0, "a public key"), call.text(1, "a reason", required=False))
    return True


def _allow_pubkey(agent: Agent, call: Call) -> bool:
    allow_key(agent, call.hex64(0, "a public key"), call.text(1, "a reason", required=False))
    return True


def _ending(subject: Subject, name: str) -> Run:
    def end(agent: Agent, call: Call) -> bool:
        unset_rule(agent, subject, call.hex64(0, name))
        return True

    return end


def _ban_event(agent: Agent, call: Call) -> bool:
    ban_event(agent, call.hex64(0, "an event id"), call.text(1, "a reason", required=False))
    return True


def _allow_event(agent: Agent, call: Call) -> bool:
    event_id = call.hex64(0, "an event id")
    unset_rule(agent, Subject.BANNED_EVENT, event_id)
    set_rule(agent, Subject.ALLOWED_EVENT, event_id, call.text(1, "a reason", required=False))
    return True


def _needing_moderation(agent: Agent, _call: Call) -> list[dict[str, str]]:
    found = islice(reported_events(agent), _MOST_LISTED)
    return [{"id": each.event.id, "reason": each.reason} for each in found]


def _changing(name: str) -> Run:
    def change(agent: Agent, call: Call) -> bool:
        text = call.text(0, f"the relay's {name}")
        if name == "icon" and text and not text.startswith(("https://", "http://")):
            raise InvalidCall("expected the URL of an icon, which begins with https:// or http://")
        if text:
            # The rule's reason is the text. Each name has one rule.
            set_rule(agent, Subject.PROFILE, name, text)
        else:
            unset_rule(agent, Subject.PROFILE, name)  # the settings apply again
        return True

    return change


def _allow_kind(agent: Agent, call: Call) -> bool:
    """Allow the kind: drop the rule that refuses it, if there is one. Once the list of allowed
    kinds has an entry, no other kinds are allowed. So the kind goes on the list, unless the list is
    empty and dropping the rule was enough."""
    kind, found = str(call.kind(0)), rules(agent)
    was_refused = kind in found.of(Subject.DISALLOWED_KIND)
    if was_refused:
        unset_rule(agent, Subject.DISALLOWED_KIND, kind)
    if not was_refused or found.of(Subject.ALLOWED_KIND):
        set_rule(agent, Subject.ALLOWED_KIND, kind)
    return True


def _disallow_kind(agent: Agent, call: Call) -> bool:
    """Refuse the kind: take it off the list of allowed kinds. An empty list allows every kind, so a
    rule of its own refuses the kind if the list would be empty or never had the kind."""
    kind, allowed = str(call.kind(0)), rules(agent).of(Subject.ALLOWED_KIND)
    if not allowed.keys() - {kind} or kind not in allowed:
        set_rule(agent, Subject.DISALLOWED_KIND, kind)
    if kind in allowed:
        unset_rule(agent, Subject.ALLOWED_KIND, kind)
    return True


def _kinds(subject: Subject) -> Run:
    return lambda agent, _: sorted(map(int, rules(agent).of(subject)))


def _address(call: Call) -> str:
    try:
        return str(ip_address(call.text(0, "an IP address")))
    except ValueError:
        raise InvalidCall("expected an IP address") from None


def _block_ip(agent: Agent, call: Call) -> bool:
    set_rule(agent, Subject.BLOCKED_IP, _address(call), call.text(1, "a reason", required=False))
    return True


def _unblock_ip(agent: Agent, call: Call) -> bool:
    unset_rule(agent, Subject.BLOCKED_IP, _address(call))
    return True


def _listing(subject: Subject, name: str) -> Run:
    def list_rules(agent: Agent, _call: Call) -> list[dict[str, str]]:
        found = islice(sorted(rules(agent).of(subject).items()), _MOST_LISTED)
        return [{name: value, **({"reason": reason} if reason else {})} for value, reason in found]

    return list_rules


# Addresses can be blocked only on one machine; in the cloud the web ACL does this.
_ON_ONE_MACHINE = frozenset({Method.BLOCK_IP, Method.UNBLOCK_IP, Method.LIST_BLOCKED_IPS})

METHODS: Mapping[Method, Run] = {
    Method.SUPPORTED_METHODS: lambda agent, _: supported_methods(agent),
    Method.BAN_PUBKEY: _ban_pubkey,
    Method.UNBAN_PUBKEY: _ending(Subject.BANNED_KEY, "a public key"),
    Method.LIST_BANNED_PUBKEYS: _listing(Subject.BANNED_KEY, "pubkey"),
    Method.ALLOW_PUBKEY: _allow_pubkey,
    Method.UNALLOW_PUBKEY: _ending(Subject.ALLOWED_KEY, "a public key"),
    Method.LIST_ALLOWED_PUBKEYS: _listing(Subject.ALLOWED_KEY, "pubkey"),
    Method.LIST_EVENTS_NEEDING_MODERATION: _needing_moderation,
    Method.ALLOW_EVENT: _allow_event,
    Method.UNALLOW_EVENT: _ending(Subject.ALLOWED_EVENT, "an event id"),
    Method.LIST_ALLOWED_EVENTS: _listing(Subject.ALLOWED_EVENT, "id"),
    Method.BAN_EVENT: _ban_event,
    Method.UNBAN_EVENT: _ending(Subject.BANNED_EVENT, "an event id"),
    Method.LIST_BANNED_EVENTS: _listing(Subject.BANNED_EVENT, "id"),
    Method.CHANGE_RELAY_NAME: _changing("name"),
    Method.CHANGE_RELAY_DESCRIPTION: _changing("description"),
    Method.CHANGE_RELAY_ICON: _changing("icon"),
    Method.ALLOW_KIND: _allow_kind,
    Method.DISALLOW_KIND: _disallow_kind,
    Method.LIST_ALLOWED_KINDS: _kinds(Subject.ALLOWED_KIND),
    Method.LIST_DISALLOWED_KINDS: _kinds(Subject.DISALLOWED_KIND),
    Method.BLOCK_IP: _block_ip,
    Method.UNBLOCK_IP: _unblock_ip,
    Method.LIST_BLOCKED_IPS: _listing(Subject.BLOCKED_IP, "ip"),
}


def supported_methods(agent: Agent) -> list[str]:
    left_out = frozenset() if agent.alone else _ON_ONE_MACHINE
    return [method.value for method in METHODS if method not in left_out]


def manage(agent: Agent, call: Call) -> Any:
    if call.method.value not in supported_methods(agent):
        raise InvalidCall(f"{call.method} is not supported here")
    return METHODS[call.method](agent, call)
