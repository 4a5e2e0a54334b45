"""Paid subscriptions (BTP-NIPs): what their messages do, and how events reach their owners."""
