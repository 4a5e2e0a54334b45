"""Stream of the events table: a number for every stored event."""

from farthing.handlers.streams import arrivals, stream_handler
from farthing.relay.sequence import number_all

handler = stream_handler(arrivals, number_all)
