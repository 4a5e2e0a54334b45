"""POST /ilp: packets from peers (ILP over HTTP), and the replies that go by callback."""

from farthing.cloud import runtime
from farthing.cloud.outbound import CALLBACK, LambdaOutbound
from farthing.cloud.sockets import flush
from farthing.cloud.web import Event, Response, body_of, octets_answer, problem
from farthing.ilp.requests import HttpError, receive_packet

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
