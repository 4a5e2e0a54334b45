"""POST /ilp: packets from peers (ILP over HTTP), and the replies that go by callback."""

from farthing.aws.outbound import CALLBACK, LambdaOutbound
from farthing.connector.requests import HttpError, receive_packet
from farthing.handlers import runtime
from farthing.handlers.sockets import flush
from farthing.handlers.web import Event, Response, body_of, octets_answer, problem

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    if CALLBACK in event and isinstance(agent.outbound, LambdaOutbound):
        agent.outbound.finish(event[CALLBACK])
        return {}
    try:
        answer = receive_packet(agent, event.get("headers") or {}, body_of(event))
    except HttpError as error:
        return problem(error.status, str(error))
    finally:
        flush(agent)
    return octets_answer(answer.status, answer.body)
