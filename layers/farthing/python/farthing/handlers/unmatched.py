"""The answer to an HTTP request that no route matches: a preflight, 405 or 404."""

from collections.abc import Iterable

from farthing.handlers.calls import Response
from farthing.handlers.web import answer, problem
from farthing.surface import ROUTES, Route, allowed_methods

_PREFLIGHT_SECONDS = "86400"


def answer_unmatched(method: str, raw_path: str, routes: Iterable[Route] = ROUTES) -> Response:
    methods = allowed_methods(raw_path, routes)
    if not methods:
        return problem(404, f"expected a known path, got {raw_path[:100]}")
    allow = ", ".join(methods)
    if method == "OPTIONS":
        response = answer(204)
        response["headers"]["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
    else:
        response = problem(405, f"expected {allow}, got {method[:20]}")
    response["headers"]["Allow"] = allow
    return response
