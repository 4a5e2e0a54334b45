"""Stream of the events table: send new events to the subscriptions that match them."""

from farthing.handlers.streams import placed_events, stream_handler
from farthing.relay.fan_out import fan_out_all

handler = stream_handler(placed_events, lambda agent, new: fan_out_all(agent, *new))
