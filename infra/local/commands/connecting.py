"""Why a WebSocket to a relay could not be opened, in words for the user."""

import aiohttp

from farthing.ports.hosts import why_unreachable


def why_not_connected(error: BaseException) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return "its certificate is not valid"
        case aiohttp.ClientConnectorError(os_error=cause):
            return why_unreachable(cause)
        case aiohttp.WSServerHandshakeError(status=status):
            return f"it answers HTTP {status} where a WebSocket was asked for"
        case TimeoutError():
            return "it took too long"
    return str(error) or type(error).__name__
