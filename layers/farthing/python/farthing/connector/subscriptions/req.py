"""REQ: open a subscription, top it up, change it, pull from it, or ask for its state."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from farthing.btp_nips.account import Account
from farthing.btp_nips.codec import Written
from farthing.btp_nips.conditions import check_reply_to
from farthing.btp_nips.errors import InvalidAmount
from farthing.btp_nips.fees import (
    LOW_CREDIT_FEES,
    Agreement,
    check_ceilings,
    payment_insufficient,
    top_up,
)
from farthing.btp_nips.filter_sets import check_filters
from farthing.btp_nips.identity import origin_of
from farthing.btp_nips.lifecycle import (
    Ending,
    Intent,
    State,
    check_order,
    intent_of,
)
from farthing.btp_nips.messages import HOPS_MAX, Delivery, Req
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import Position, backlog_size
from farthing.btp_nips.propagation import check_loop
from farthing.connector.configuration import address_of
from farthing.connector.forwarding import is_of_child
from farthing.connector.subscriptions.answering import answer_of
from farthing.connector.subscriptions.beginning import begin
from farthing.connector.subscriptions.ending import end, end_writes
from farthing.connector.subscriptions.message import SubscriberMessage
from farthing.connector.subscriptions.proof import prove_address
from farthing.connector.subscriptions.pulling import hand_out_messages, messages_again
from farthing.connector.subscriptions.reading import NOTHING_KNOWN, backlog_for, start_of
from farthing.ilp.address import is_prefix
from farthing.ilp.reject import Rejected
from farthing.ports.meter import Metric
from farthing.store.events import StoredEvent
from farthing.store.paid_records import Agreed, PaidSubscription, Trouble
from farthing.store.subscription_funds import Funds
from farthing.store.table import TransactWrite


class ReqMessage(SubscriberMessage):
    message: Req
    intent: Intent | None = None
    messages: Sequence[Written] = ()
    more: bool = False
    shown_position: Position | None = None
    _backlog: bytes | None = None
    _known: Mapping[str, StoredEvent] = (
        NOTHING_KNOWN  # the events of the backlog, if they were just read
    )
    _ending: Ending | None = None
    _drawn = 0  # amount drawn from credit, for events and time
    _delivered = 0
    _stale: PaidSubscription | None = None  # the state whose hints are out of date

    def check(self) -> None:
        super().check()
        settings = self.agent.settings
        check_filters(self.message.filters, settings.max_filters, settings.max_filter_values)

    # Planning

    def plan(self) -> list[TransactWrite]:
        old, now = self.standing.subscription, self.agent.now
        current = None if old is None else old.current
        check_order(self.message.metadata.timestamp, current)
        self.intent = intent_of(self.message, self.prepare.amount, current, now)
        self.price, self.messages, self.more, self.shown_position = 0, (), False, None
        self._drawn = self._delivered = 0
        self._backlog, self._known, self._ending = None, NOTHING_KNOWN, None
        if self.intent is Intent.CREATE:
            return self._create()
        assert old is not None
        if self.intent is Intent.STATUS:
            self.subscription = old
            return []
        if self.intent is Intent.PULL:
            return self._go_on(old)
        self._check_loop()
        return self._replace(old) if self.intent is Intent.REPLACE else self._go_on(old)

    def _create(self) -> list[TransactWrite]:
        req, settings = self.message, self.agent.settings
        is_own = self._check_loop()
        wanted = req.metadata.propagate if settings.subscription_propagate else None
        budget = 0 if wanted is None else wanted.budget
        agreement = settings.subscription_fees.agree(
            req.payment, req.filters, req.metadata.ttl, received=self.prepare.amount, budget=budget
        )
        self.price = agreement.terms.price
        agreed = self._agreed(agreement)
        beginning = begin(self.agent, req, self.owner)
        new = PaidSubscription(
            owner=self.owner,
            id=req.subscription_id,
            agreed=agreed,
            account=Account(agreement.credit, beginning.cursor, beginning.cursor),
            floor=beginning.cursor,
            state=State.PENDING,
            began=self.agent.now,
            expires_at=self.agent.now + agreement.ttl,
            last_timestamp=req.metadata.timestamp,
            since=beginning.since,
            stored=backlog_size(beginning.backlog),
            version=(self.standing.version or 0) + 1,
            generation=(self.standing.version or 0) + 1,
            credited=agreement.credit + budget,
            budget=budget,
        )
        self._prove(new)
        self._backlog, self._known = beginning.backlog, beginning.known
        start = self._start(new)
        after, along = self._pull(new, start)
        self._drawn, self._delivered = after.account.spent, after.account.delivered
        writes = self.agent.paid_subscriptions.create(
            after,
            self.standing,
            beginning.backlog,
            most=settings.subscription_max,
            most_of_peer=settings.subscription_per_peer,
        )
        self._lead_to(after, None)
        self.subscription = after
        if after.agreed.origin:
            # If two equal ones come at once by two ways, one fails here and is refused at its next
            # read.
            store = self.agent.paid_subscriptions
            writes.append(store.know_origin(after, self.agent.now, is_own=is_own))
        return [*writes, self.noting(start), *along]

    def _check_loop(self) -> bool:
        """Refuse a subscription that other relays have passed on to us twice. Returns whether the
        origin belongs to this subscription: no other subscription here has the same origin."""
        metadata, known = self.message.metadata, None
        if metadata.origin is not None:
            known = self.agent.paid_subscriptions.origin_of(metadata.origin)
        is_own = known == (self.owner, self.message.subscription_id)
        is_strange = known is not None and not is_own
        check_loop(metadata, self.agent.settings.pubkey, is_known_origin=is_strange)
        return metadata.origin is None or is_own

    def _replace(self, old: PaidSubscription) -> list[TransactWrite]:
        req, received = self.message, self.prepare.amount
        fees = self.agent.settings.subscription_fees
        model = fees.choose(req.payment, received)
        ttl = fees.ttl(model, req.metadata.ttl)
        terms = fees.terms(model, req.filters, ttl)
        check_ceilings(terms, req.payment.ceilings, received)
        if model is Model.FREE and received:
            raise InvalidAmount(f"a free subscription takes no money, got {received}")
        least = terms.price + max(0, terms.event_fee - old.account.credit)
        if received < least:
            raise payment_insufficient(terms, least, received)
        self.price = terms.price
        added = received - terms.price
        beginning = begin(self.agent, req, self.owner, old)
        new = replace(
            old,
            agreed=self._agreed(Agreement(terms, ttl, added), old),
            account=replace(
                old.account.replaced(added), cursor=beginning.cursor, paid_mark=beginning.cursor
            ),
            credited=old.credited + added,
            state=State.PENDING,
            expires_at=self.agent.now + ttl,
            last_timestamp=req.metadata.timestamp,
            since=beginning.since,
            stored=backlog_size(beginning.backlog),
            floor=beginning.cursor,
            generation=old.version + 1,
            is_low=False,
            trouble=Trouble(),
        )
        self._prove(new)
        self.shown_position = old.account.cursor
        self._backlog, self._known = beginning.backlog, beginning.known
        store = self.agent.paid_subscriptions
        return self._changed(
            old, new, [*store.agree(new, beginning.backlog), store.due(new, new.expires_at * 1000)]
        )

    def _go_on(self, old: PaidSubscription) -> list[TransactWrite]:
        """A top-up, a pull, or both."""
        req, received, now = self.message, self.prepare.amount, self.agent.now
        check_ceilings(old.terms, req.payment.ceilings, received)
        topped = top_up(
            old.terms,
            credit=old.account.credit,
            expires_at=old.expires_at,
            received=received,
            ttl=req.metadata.ttl,
            now=now,
        )
        self.price = min(topped.cost, received)
        added = received - self.price
        account = replace(
            old.account,
            credit=topped.credit,
            spent=old.account.spent + topped.cost - self.price,
        )
        new = replace(
            old,
            agreed=self._agreed(None, old),
            account=account,
            credited=old.credited + added,
            expires_at=topped.expires_at,
            last_timestamp=req.metadata.timestamp,
            is_low=old.is_low and not received,
            trouble=replace(old.trouble, retry_ms=0),  # its owner is there
        )
        self._prove(new)
        store = self.agent.paid_subscriptions
        along: list[TransactWrite] = []
        if new.agreed != old.agreed or new.expires_at != old.expires_at:
            along += store.agree(new)
        if new.expires_at != old.expires_at:
            along += store.extend(new)
        return self._changed(old, new, along)

    def _changed(
        self, old: PaidSubscription, new: PaidSubscription, along: Sequence[TransactWrite]
    ) -> list[TransactWrite]:
        start = self._start(new)
        after, more = self._pull(new, start)
        self._drawn = after.account.spent - old.account.spent
        self._delivered = after.account.delivered - old.account.delivered
        store = self.agent.paid_subscriptions
        keeps_lease = self.intent is Intent.TOP_UP and start is None and new.is_push
        self._lead_to(after, old)
        self.subscription = after
        change = store.change(old, after, lease_ms=None if keeps_lease else 0)
        return [change, *along, self.noting(start), *more]

    def _lead_to(self, new: PaidSubscription, old: PaidSubscription | None) -> None:
        """Write the hints by which events find a subscription by push, before it is open. The hints
        of its former state are removed afterwards."""
        is_same = old is not None and old.is_push and old.place == new.place
        if new.is_push and not (is_same and old is not None and old.expires_at == new.expires_at):
            self.agent.paid_subscriptions.write_hints(new)
        self._stale = old if old is not None and old.is_push and not is_same else None

    def _start(self, subscription: PaidSubscription) -> Position | None:
        """The position behind which a pull begins; None without a pull."""
        metadata = self.message.metadata
        return None if metadata.pull is None else start_of(subscription, metadata.after)

    def _pull(
        self, new: PaidSubscription, start: Position | None
    ) -> tuple[PaidSubscription, list[TransactWrite]]:
        """Hand messages out, if the REQ asks for a pull. Returns the new subscription, and the
        writes that go with it."""
        most, agent = self.message.metadata.pull, self.agent
        if most is None or start is None:
            return new, []
        self.shown_position = None
        backlog = self._backlog
        if backlog is None:
            backlog = backlog_for(agent, new, start)
        funds = self._funds(new, most)
        handed = hand_out_messages(agent, new, backlog, start, most, funds.drawable, self._known)
        self.messages, self.more, self._ending = handed.messages, handed.more, handed.ending
        after = handed.subscription
        if handed.ending is None or self.intent is Intent.CREATE:
            # A transaction cannot both open and end a subscription.
            return after, agent.subscription_funds.move(
                funds, new.id, drawn=handed.refill, returned=0, time_ms=agent.now_ms
            )
        ended = after.ended(handed.ending, agent.now)
        return ended, end_writes(agent, ended, drawn=handed.refill)

    def _funds(self, subscription: PaidSubscription, most: int) -> Funds:
        """The owner's funds for a refill of the credit. They are read only if a refill may be
        needed."""
        fee = subscription.terms.event_fee
        if not fee or subscription.account.credit >= fee * (most + LOW_CREDIT_FEES):
            return Funds(subscription.owner)
        return self.agent.subscription_funds.of(subscription.owner)

    # The parts of a subscription

    def _agreed(self, agreement: Agreement | None, old: PaidSubscription | None = None) -> Agreed:
        metadata = self.message.metadata
        if old is None:
            assert agreement is not None
            return Agreed(
                terms=agreement.terms,
                filters=self.message.filters,
                delivery=metadata.delivery or Delivery.PULL,
                peer=self.peer.id,
                reply_to=metadata.reply_to or "",
                window=min(metadata.window or 1, self.agent.settings.subscription_window),
                hops=self._hops,
                path=metadata.path,
                origin=self._origin,
            )
        known = old.agreed
        if agreement is not None:
            known = replace(known, terms=agreement.terms, filters=self.message.filters)
        window = min(metadata.window or known.window, self.agent.settings.subscription_window)
        return replace(
            known,
            delivery=metadata.delivery or known.delivery,
            reply_to=metadata.reply_to or known.reply_to,
            window=window,
        )

    @property
    def _hops(self) -> int:
        """Over how many further relays the subscription is passed on."""
        wanted = self.message.metadata.propagate
        is_on = wanted is not None and self.agent.settings.subscription_propagate
        is_far = len(self.message.metadata.path) >= HOPS_MAX
        return wanted.hops if wanted is not None and is_on and not is_far else 0

    @property
    def _origin(self) -> str:
        given = self.message.metadata.origin
        if given is not None or not self._hops:
            return given or ""
        own = self.agent.settings.pubkey
        return origin_of(own, self.owner, self.message.subscription_id)

    def _prove(self, new: PaidSubscription) -> None:
        if not new.is_push:
            return
        reply_to, own = new.agreed.reply_to, self.agent.settings.own_ilp_address
        check_reply_to(
            reply_to,
            is_ours=is_prefix(own, reply_to) and not is_of_child(self.agent, reply_to),
            owner=new.owner,
            peer_address=address_of(self.agent, self.peer),
        )
        prove_address(self.agent, new, self.milliseconds_left)

    def refused_by(self, failed: Sequence[bool]) -> Rejected | None:
        if self.intent is not Intent.CREATE:
            return None
        settings = self.agent.settings
        if failed[1]:
            return self.too_many(f"expected at most {settings.subscription_max} subscriptions")
        if failed[2]:
            most = settings.subscription_per_peer
            return self.too_many(f"expected at most {most} subscriptions by way of one peer")
        return None

    # After the commit

    def after_commit(self) -> None:
        super().after_commit()
        if self._drawn:
            self.agent.meter.count(Metric.REVENUE, self._drawn)
        if self._delivered:
            self.agent.meter.count(Metric.EVENTS_DELIVERED, self._delivered)
        if self._ending is not None and self.intent is Intent.CREATE:
            ended = end(self.agent, self._opened(), self._ending)
            self.subscription = ended or self.subscription
        if self._stale is not None:
            self.agent.paid_subscriptions.forget_hints(self._stale)
        self._wake()

    def _opened(self) -> PaidSubscription:
        assert self.subscription is not None
        return self.subscription

    def after_repeat(self) -> None:
        self._wake()

    def _wake(self) -> None:
        """Start the delivery by push."""
        found = self.present()
        has_work = found.is_push or (found.agreed.hops and not found.is_spread)
        if has_work and self.intent is not Intent.STATUS:
            self.agent.wakes.wake(found.owner, found.id)

    def answer(self) -> bytes:
        if self.subscription is not None:
            answer = answer_of(self.agent, self.subscription, self.shown_position)
            return answer.encode(self.messages, more=self.more)
        return self._answer_again()

    def _answer_again(self) -> bytes:
        """The answer to a repeat: the messages of the first answer, and the present state."""
        present, pull = self.present(), self.message.metadata.pull
        messages: Sequence[Written] = ()
        more = False
        if pull is not None and self.noted is not None and self.noted.start is not None:
            start = self.noted.start
            backlog = backlog_for(self.agent, present, start)
            messages, more = messages_again(self.agent, present, backlog, start, pull)
        return answer_of(self.agent, present).encode(messages, more=more)
