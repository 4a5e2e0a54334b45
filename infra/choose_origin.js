import cf from 'cloudfront';

// A request goes to the HTTP API where that is certain, and is taken for a socket otherwise: which
// headers of a handshake an edge function sees is not. Paths that end with a slash stand for all
// below them; a test holds the list to the routes of the HTTP API.
const WEB_PATHS = ['/ilp', '/healthz', '/purse', '/purse/', '/v1/', '/accounts/', '/.well-known/'];
const SOCKET_PATH = '/v1/ws';
// Pages in the bucket, for whoever asks for HTML. A deployment without them changes this line.
const HAS_PAGE = true;
const PAGES = { '/': '/index.html', '/operator': '/operator.html' };

function isWebPath(path) {
  return WEB_PATHS.some((each) => (each.endsWith('/') ? path.startsWith(each) : path === each));
}

function isPage(request, path) {
  const headers = request.headers || {};
  const accepted = headers.accept ? headers.accept.value.toLowerCase() : '';
  const reads = !request.method || request.method === 'GET' || request.method === 'HEAD';
  const asked = accepted.includes('text/html') && !accepted.includes('nostr+json');
  return reads && asked && PAGES[path] !== undefined;
}

function isWeb(request, path) {
  if (request.method && request.method !== 'GET') {
    return true;
  }
  if (path === SOCKET_PATH) {
    return false;
  }
  const headers = request.headers || {};
  const accepted = headers.accept ? headers.accept.value.toLowerCase() : '';
  return isWebPath(path) || accepted.includes('nostr+json') || accepted.includes('text/html');
}

function handler(event) {
  const request = event.request;
  const path = request.uri || '/';
  // Set here and nowhere else: whatever a viewer says about itself under these names is gone.
  request.headers['x-farthing-viewer'] = { value: event.viewer ? event.viewer.ip : '' };
  request.headers['x-farthing-path'] = { value: path };
  if (HAS_PAGE && isPage(request, path)) {
    request.uri = PAGES[path];
    cf.selectRequestOriginById('pages');
  } else if (isWeb(request, path)) {
    cf.selectRequestOriginById('web');
  } else {
    // A WebSocket API knows no paths: one after its stage is refused with 403.
    request.uri = '/';
  }
  return request;
}
