"""Paid subscriptions (BTP-NIPs): messages, fees, conditions and rules; no store, no clock."""
