"""POST /ilp: packets from peers (ILP over HTTP)."""

from farthing.cloud import runtime
from farthing.cloud.sockets import flush
from farthing.cloud.web import Event, Response, body_of, octets_answer, problem
from farthing.ilp.requests import HttpError, receive_packet

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    try:
        answer = receive_packet(agent, event.get("headers") or {}, body_of(event))
    except HttpError as error:
        return problem(error.status, str(error))
    finally:
        flush(agent)
    return octets_answer(answer.status, answer.body)
