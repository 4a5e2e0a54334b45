"""Paid subscriptions (BTP-NIPs): the effect of each message, and the delivery of events to
subscribers."""
