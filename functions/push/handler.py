"""Stream of the change log: send new entries to live CHANGES subscriptions."""

from farthing.handlers.streams import new_entries, stream_handler
from farthing.relay.fan_out import push_all

handler = stream_handler(new_entries, push_all)
