// Keeps the page: it works without a network after the first visit. Also adds the headers to answers that a page needs
// for threads, for servers that cannot. Only files of the page go through it.
//
// The files of one version of the page are kept together, under its digest. A newer version is fetched as a whole, and
// used when no tab has the older one open: no page gets files of both.
const CACHES = `rullama ${self.registration.scope} `;  // begins the names of this page's caches
const CACHE = CACHES + '@PAGE_DIGEST@';
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
  // The browser may have removed the cache.
  const response = await caches.match(address, {cacheName: CACHE}) || await fetch(request);
  return response.status === 200 ? isolated(response) : response;  // a redirection, or an error
}
async function keepFiles() {
  const cache = await caches.open(CACHE);
  await cache.addAll(FILES.map(name => new Request(name, {cache: 'no-cache'})));
}
async function removeOlderCaches() {
  const names = await caches.keys();
  await Promise.all(names.filter(name => name.startsWith(CACHES) && name !== CACHE).map(name => caches.delete(name)));
}
self.addEventListener('install', event => event.waitUntil(keepFiles()));
self.addEventListener('activate', event => event.waitUntil(removeOlderCaches().then(() => self.clients.claim())));
self.addEventListener('fetch', event => {
  const address = event.request.method === 'GET' ? keptAddress(event.request.url) : null;
  if (address) event.respondWith(answer(event.request, address));
});
