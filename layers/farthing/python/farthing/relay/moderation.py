"""The operator's current rules: banned and allowed keys, banned events, allowed kinds, and the
relay's name, description and icon. Policies and prices read the rules; NIP-86 and the commands
write them."""

from collections.abc import Callable
from dataclasses import replace

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import Prefix, Refused
from farthing.settings import Settings
from farthing.store.rules import RuleBook, Rules, Subject

_CACHE_SECONDS = 0.5  # a rule takes effect within a second, in every process


class RulesInForce:
    """The rules, read again when their version has changed."""

    def __init__(self, book: RuleBook, clock: Callable[[], float]) -> None:
        self.book = book
        self._clock = clock
        self._rules: Rules | None = None
        self._looked = 0.0

    def now(self) -> Rules:
        rules, moment = self._rules, self._clock()
        # Also read again if the clock was set back.
        if rules is not None and 0 <= moment - self._looked < _CACHE_SECONDS:
            return rules
        self._looked = moment
        if rules is None or self.book.version() != rules.version:
            rules = self._rules = self.book.read()
        return rules

    def forget(self) -> None:
        """Read the rules again at the next call: this process has changed a rule."""
        self._looked = float("-inf")


def rules_in_force(agent: Agent) -> RulesInForce:
    return agent.part(_rules_in_force)


def _rules_in_force(agent: Agent) -> RulesInForce:
    return RulesInForce(RuleBook(agent.engine), agent.clock)


def rules(agent: Agent) -> Rules:
    return rules_in_force(agent).now()


def not_banned(agent: Agent, event: Event) -> None:
    """Refuse an event if its author, its id or its kind is banned."""
    found = rules(agent)
    if not found.by_subject or event.pubkey == agent.settings.pubkey:
        return
    if event.pubkey in found.of(Subject.BANNED_KEY):
        raise Refused(Prefix.BLOCKED, "author is banned here")
    if event.id in found.of(Subject.BANNED_EVENT):
        raise Refused(Prefix.BLOCKED, "event is banned here")
    if event.kind == Kind.REQUEST_TO_VANISH:
        return  # honoured for everybody who may write (NIP-62)
    kind, kinds = str(event.kind), found.of(Subject.ALLOWED_KIND)
    if (kinds and kind not in kinds) or kind in found.of(Subject.DISALLOWED_KIND):
        raise Refused(Prefix.BLOCKED, f"kind {event.kind} is not allowed here")


def is_allowed(agent: Agent, pubkey: str) -> bool:
    """Whether the operator lets this key write for free."""
    return pubkey in rules(agent).of(Subject.ALLOWED_KEY)


def is_blocked(agent: Agent, address: str) -> bool:
    """Whether the operator has blocked this IP address."""
    return address in rules(agent).of(Subject.BLOCKED_IP)


def settings_in_force(agent: Agent) -> Settings:
    """The settings, with the name, description and icon that the operator has set by NIP-86."""
    settings, given = agent.settings, rules(agent).of(Subject.PROFILE)
    if not given:
        return settings
    return replace(
        settings,
        name=given.get("name", settings.name),
        description=given.get("description", settings.description),
        icon=given.get("icon", settings.icon),
    )


def set_rule(agent: Agent, subject: Subject, value: str, reason: str = "") -> None:
    force = rules_in_force(agent)
    force.book.set(subject, value, reason, agent.now)
    force.forget()


def unset_rule(agent: Agent, subject: Subject, value: str) -> None:
    force = rules_in_force(agent)
    force.book.unset(subject, value)
    force.forget()
