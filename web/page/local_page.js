// The page that runs a model in the tab (index.html): opens files and downloads, and asks the engine. A module, after
// markdown.js, conversation.js and pictures.js.
import {Rullama} from './rullama.mjs';
import {ModelStore, nameOf} from './rullama_store.mjs';

let model = null;      // the open one
let opening = null;    // the promise of one that is being opened
let download = null;   // the AbortController of the download that runs
const MEGABYTE = 1e6;
const sizeOf = bytes =>
  bytes < 1000 * MEGABYTE ? `${Math.round(bytes / MEGABYTE)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
const messageOf = error => error.id ? `${error.message} [${error.id}]` : error.message || String(error);
// The action, which tells its error instead of throwing it.
const telling = action => async (...inputs) => {
  try {
    await action(...inputs);
  } catch (error) {
    tell(messageOf(error));
  }
};

// ---- Opening ----
function showModel(name) {
  at('beginning').hidden = Boolean(name);
  at('close').hidden = !name;
  at('name').textContent = name;
}
function engineSettings() {
  const settings = {};
  if (at('context').value !== '') settings['context.capacity'] = at('context').value;
  if (at('threads').value !== '') settings['backend.options'] = `{threads: ${at('threads').value}}`;
  return settings;
}
async function openModel(file, name, towers) {
  if (opening || model) return;
  tell(`Opening ${name} …`);
  try {
    opening = Rullama.open(file, {settings: engineSettings(), towers});
    model = await opening;
    const {architecture, quantization, file_bytes: bytes, load_seconds: seconds} = model.info;
    showModel(name);
    takePictures(model.info.takes_pictures);
    tell(`${architecture}, ${quantization}, ${sizeOf(bytes)}, opened in ${seconds.toFixed(1)} s`);
    box.focus();
  } catch (error) {
    tell(messageOf(error));
  } finally {
    opening = null;
  }
}
function closeModel() {
  if (running) running.abort();
  model.close();
  model = null;
  showModel('');
  takePictures(false);
  tell('');
  at('file').value = '';
  at('file').focus();
}

// ---- Downloads ----
function showProgress({phase, done, total}, name) {
  const progress = at('progress');
  progress.hidden = false;
  progress.setAttribute('aria-label', phase === 'check' ? `Checking ${name}` : `Downloading ${name}`);
  if (total === null) progress.removeAttribute('value');
  else progress.value = done / total;
  at('amount').textContent = `${phase === 'check' ? 'Checking' : 'Downloading'} ${sizeOf(done)}` +
      (total === null ? '' : ` of ${sizeOf(total)}`);
}
function endProgress() {
  download = null;
  if (document.activeElement === at('pause')) at('url').focus();
  at('progress').hidden = true;
  at('pause').hidden = true;
  at('amount').textContent = '';
}
// `sha256`: null for that of an earlier call.
async function downloadModel(url, name, sha256) {
  if (download) return tell('Another download runs.');
  download = new AbortController();
  at('pause').hidden = false;
  tell('');
  try {
    await ModelStore.download(url, {sha256, signal: download.signal,
                                    onProgress: state => showProgress(state, name)});
    tell(`${name} is complete and can be opened.`);
  } catch (error) {
    tell(error.name === 'AbortError' ? `${name} is not complete; it continues where it was.` : messageOf(error));
  }
  endProgress();
  await listStored();
}
function storedRow({url, name, size, bytes, complete}) {
  const amount = complete || size === null ? sizeOf(bytes) : `${sizeOf(bytes)} of ${sizeOf(size)}`;
  const button = (text, action) => {
    const node = make('button', text);
    node.type = 'button';
    node.setAttribute('aria-label', `${text} ${name}`);
    node.addEventListener('click', action);
    return node;
  };
  const start = complete ? button('Open', telling(async () => openModel(await ModelStore.file(url), name)))
                         : button('Continue', telling(() => downloadModel(url, name, null)));
  const remove = button('Remove', telling(async () => {
    await ModelStore.remove(url);  // fails if it is in use
    await listStored();
  }));
  return make('li', '', make('span', `${name}, ${amount} `), start, remove);
}
async function listStored() {
  if (!navigator.storage || !navigator.storage.getDirectory) return;
  showRows((await ModelStore.list()).map(storedRow));
}
// The row that had the focus passes it to the one in its place, or to the address.
function showRows(rows) {
  const list = at('stored');
  const focused = [...list.children].findIndex(row => row.contains(document.activeElement));
  list.replaceChildren(...rows);
  list.hidden = !rows.length;
  if (focused < 0) return;
  const next = rows[Math.min(focused, rows.length - 1)];
  (next ? next.querySelector('button') : at('url')).focus();
}

// ---- Asking ----
async function countsOf({tokens, prompt_tokens: prompt, cached_tokens: cached, prompt_seconds: before,
                         generate_seconds: seconds}) {
  const speed = tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens per second`
                                          : `${tokens} token`;
  return `${speed}, prompt of ${prompt} tokens in ${before.toFixed(1)} s, ${cached} of them from the cache, ` +
      `${sizeOf(await model.memory())} of memory`;
}
function blobOf(url) {
  const [head, text] = url.split(',');
  return new Blob([Uint8Array.from(atob(text), character => character.charCodeAt(0))],
                  {type: head.slice('data:'.length).split(';')[0]});
}
function contentOf({content, pictures}) {
  if (!pictures) return content;
  const parts = pictures.map(() => ({type: 'image'}));
  return content ? [...parts, {type: 'text', text: content}] : parts;
}
async function* ask(messages, signal) {
  const options = {...samplingSettings(), signal};
  if (at('thinking').checked) options.thinking = true;
  options.media = messages.flatMap(({pictures}) => pictures || [])
                          .map(({url}) => ({kind: 'picture', data: blobOf(url)}));
  for await (const part of model.chat(turnsOf(messages, contentOf), options)) {
    if (part.kind === 'text') yield {text: part.text};
    else if (part.kind === 'thinking') yield {thoughts: part.text};
    else if (part.kind === 'draft') yield {draft: part.text};
    else if (part.kind === 'progress') tell(`Reading the prompt: ${part.done} of ${part.total} tokens`);
    else if (part.kind === 'end') yield {counts: await countsOf(part)};
    if (part.kind !== 'progress') tell('');
  }
}

// ---- Beginning ----
// Of two files the one with towers says so in its name.
function openFiles(files) {
  const towers = files.length > 1 ? files.find(({name}) => /mmproj/i.test(name)) : undefined;
  const file = files.find(other => other !== towers);
  if (file) openModel(file, file.name, towers);
}
at('file').addEventListener('change', () => openFiles([...at('file').files]));
// A file that is dropped is a model as long as none is open, and a picture afterwards.
document.addEventListener('drop', event => {
  if (model || !hasFiles(event)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  openFiles([...event.dataTransfer.files]);
}, true);
at('close').addEventListener('click', closeModel);
at('pause').addEventListener('click', () => download && download.abort());
const fetchModel = telling(async () => {
  const url = at('url').value;
  await downloadModel(url, nameOf(url), at('digest').value || null);
});
at('fetch').addEventListener('submit', event => {
  event.preventDefault();
  fetchModel();
});
beginPage({
  ask,
  isReady() {
    if (!model) tell(opening ? 'The model is being opened.' : 'Open a model first.');
    return Boolean(model);
  },
  ...attachments,
  storageKey: 'local chat',
  limitOfPictures: () => Infinity,
});
telling(listStored)();

// Whether a reload would lose something.
function hasBegun() {
  const changed = field => field.type === 'checkbox' ? field.checked !== field.defaultChecked
                                                     : field.value !== field.defaultValue;
  return Boolean(model || opening || download) || pictures.length > 0 ||
      [...document.querySelectorAll('input, textarea')].some(changed);
}
// The service worker keeps the page for times without a network. Where the server does not give the headers that threads
// need it adds them too, from the next load on.
async function isolate() {
  if (!navigator.serviceWorker) return;
  await navigator.serviceWorker.register('service_worker.js');
  await navigator.serviceWorker.ready;
  if (crossOriginIsolated || sessionStorage.getItem('reloaded')) return;
  if (hasBegun()) return tell('Reload the page to use threads.');
  sessionStorage.setItem('reloaded', 'yes');
  location.reload();
}
telling(isolate)();
