"""POST /v1/subscriptions, DELETE /v1/subscriptions/{id+}: open or end an Aether subscription."""

from typing import Any

from farthing.context import Agent
from farthing.handlers.aether_web import check_served, json_value, subscription_answer
from farthing.handlers.calls import Event, Response, client_address
from farthing.handlers.web import method_of, parameter, web_handler
from farthing.relay.aether.streams import close_subscription, open_subscription


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    check_served(agent)
    serve = _close if method_of(event) == "DELETE" else _open
    return subscription_answer(lambda: serve(agent, event))


def _open(agent: Agent, event: Event) -> dict[str, Any]:
    body = json_value(event, agent.settings.max_message_length)
    return {"subscription_id": open_subscription(agent, body, ip=client_address(event))}


def _close(agent: Agent, event: Event) -> dict[str, Any]:
    subscription_id = parameter(event, "id")
    close_subscription(agent, subscription_id)
    return {"deleted": True, "subscription_id": subscription_id}
