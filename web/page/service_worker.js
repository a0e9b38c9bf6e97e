// Keeps the page: it works without a network after the first visit. Also adds the headers to answers that a page needs
// for threads, for servers that cannot. Only files of the page go through it.
const CACHE = 'rullama';
const FILES = [@PAGE_FILES@];
const HEADERS = {'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp',
                 'Cross-Origin-Resource-Policy': 'same-origin'};

function isolated(response) {
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, {status: response.status, statusText: response.statusText, headers});
}
// The address under which a file of the page is kept, or none.
function keptAddress(address) {
  const base = new URL(self.registration.scope);
  const url = new URL(address);
  if (url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return null;
  const name = url.pathname.slice(base.pathname.length) || 'index.html';
  return FILES.includes(name) ? new URL(name, base).href : null;
}
async function answer(request, address) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.status !== 200) return response;  // a redirection, which the browser follows, or an error
    await cache.put(address, response.clone());
    return isolated(response);
  } catch (offline) {
    const kept = await cache.match(address);
    if (!kept) throw offline;
    return isolated(kept);
  }
}
self.addEventListener('install', event => {
  event.waitUntil(caches.open(CACHE).then(cache => cache.addAll(FILES)));
  self.skipWaiting();
});
self.addEventListener('activate', event => event.waitUntil(self.clients.claim()));
self.addEventListener('fetch', event => {
  const address = event.request.method === 'GET' ? keptAddress(event.request.url) : null;
  if (address) event.respondWith(answer(event.request, address));
});
