import cf from 'cloudfront';

// A request goes to the HTTP API if it surely belongs there, and otherwise to the WebSocket API: an edge
// function does not see the header Upgrade, and browsers and libraries open WebSockets with any Accept.
// A path that ends with a slash stands for all paths below it. A test compares the list with the routes
// of the HTTP API.
const WEB_PATHS = ['/ilp', '/healthz', '/purse', '/purse/', '/v1/', '/accounts/', '/.well-known/'];
const SOCKET_PATH = '/v1/ws';
// Programs that read a URL with any Accept, and that open no WebSocket without the header named below.
const READERS = /^(curl|wget|httpie|python-requests)\//i;
// Pages in the bucket, for requests that accept HTML. A deployment without pages changes this line.
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

function isReader(headers) {
  const program = headers['user-agent'] ? headers['user-agent'].value : '';
  return READERS.test(program) && !headers['sec-websocket-key'];
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
  const readable = accepted.includes('nostr+json') || accepted.includes('text/html');
  return isWebPath(path) || readable || isReader(headers);
}

function handler(event) {
  const request = event.request;
  const path = request.uri || '/';
  // Only this function sets these headers: values that a viewer has sent are overwritten.
  request.headers['x-farthing-viewer'] = { value: event.viewer ? event.viewer.ip : '' };
  request.headers['x-farthing-path'] = { value: path };
  if (HAS_PAGE && isPage(request, path)) {
    request.uri = PAGES[path];
    cf.selectRequestOriginById('pages');
  } else if (isWeb(request, path)) {
    cf.selectRequestOriginById('web');
  } else {
    // A WebSocket API has no paths: it refuses a path after the stage with 403.
    request.uri = '/';
  }
  return request;
}
