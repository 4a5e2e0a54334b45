"""Stream of the events table: new events to the subscriptions that want them."""

from farthing.handlers.streams import new_events, stream_handler
from farthing.relay.fan_out import fan_out_all

handler = stream_handler(new_events, fan_out_all)
