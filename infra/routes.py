"""The paths that CloudFront leads to the HTTP API, derived from the surface's routes."""

from collections.abc import Iterable

from farthing.surface import ROUTES, Route


def edge_paths(routes: Iterable[Route] = ROUTES) -> tuple[str, ...]:
    """CloudFront's path patterns: `/ilp` for a path of one segment, `/v1/*` for longer ones. The
    root is missing, because sockets open there too: a function at the edge decides by headers."""
    patterns = set()
    for route in routes:
        first, slash, _ = route.path[1:].partition("/")
        if first:
            patterns.add(f"/{first}/*" if slash else f"/{first}")
    return tuple(sorted(patterns))
