"""Stream of the events table: give every stored event a number."""

from farthing.handlers.streams import arrivals, stream_handler
from farthing.relay.sequence import number_all

handler = stream_handler(arrivals, number_all)
