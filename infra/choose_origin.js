import cf from 'cloudfront';

// Whoever is not opening a socket is led to the HTTP API. The Upgrade header is not visible to edge
// functions; the key that goes with it is.
function handler(event) {
  const headers = event.request.headers;
  const accepted = headers.accept ? headers.accept.value : '';
  if (!headers['sec-websocket-key'] || accepted.includes('application/nostr+json')) {
    cf.selectRequestOriginById('web');
  }
  return event.request;
}
