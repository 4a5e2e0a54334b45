"""POST /ilp: packets from peers (ILP over HTTP), and replies that are sent by callback."""

from farthing.aws.outbound import CALLBACK, LambdaOutbound
from farthing.connector.requests import receive_packet
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import body_of, octets_answer, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    if CALLBACK in event and isinstance(agent.outbound, LambdaOutbound):
        agent.outbound.finish(event[CALLBACK])
        return {}
    answer = receive_packet(agent, event.get("headers") or {}, body_of(event))
    return octets_answer(answer.status, answer.body, answer.media_type)
