// The conversation of the pages on which people chat: what was said, how it is drawn while it comes, stopping and
// asking again. After markdown.js.
let messages = [];   // {role, content, thoughts, pictures, wire}; wire: further members of a request's message
let running = null;  // the AbortController of the answer that comes
let page = null;     // the parts that pages have of their own: see beginPage()
const keep = () => { try { sessionStorage.setItem(page.storageKey, JSON.stringify(messages)); } catch (full) { sessionStorage.removeItem(page.storageKey); } };
const isAtEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 60;
const toEnd = () => { log.scrollTop = log.scrollHeight; };
function addArticle(role) {
  const body = make('div');
  body.className = 'body';
  const article = make('article', '', body);
  article.dataset.role = role;
  log.append(article);
  return {article, body};
}
function addUser({content, pictures}) {
  const {article, body} = addArticle('user');
  body.textContent = content;
  if (pictures) {
    const strip = make('div', '', ...pictures.map(drawPicture));
    strip.className = 'pictures';
    article.insertBefore(strip, body);
    body.hidden = !content;
  }
  toEnd();
}
function drawPicture({name, url}) {
  const image = make('img');
  image.src = url;
  image.alt = name;
  return image;
}
function addThoughts({article, body}) {
  const text = document.createTextNode('');
  const thoughts = make('details', '', make('summary', 'Thoughts'), text);
  thoughts.className = 'thoughts';
  article.insertBefore(thoughts, body);
  return text;
}
// The place of a canvas while it is denoised, after the text. Read aloud is only the text.
function addDraft({article, body}) {
  const draft = make('div');
  draft.className = 'draft';
  draft.setAttribute('aria-hidden', 'true');
  body.after(draft);
  return draft;
}
function removeExtras() {
  for (const node of log.querySelectorAll('.failure, .again')) node.remove();
}
function addButton(parent, text, action, name) {
  const button = make('button', text);
  button.type = 'button';
  button.addEventListener('click', action);
  const holder = make('div', '', button);
  holder.className = name;
  parent.append(holder);
}
function addRegenerate() {
  addButton(log, 'Regenerate', () => {
    if (running || !page.isReady()) return;
    while (messages.length && messages[messages.length - 1].role !== 'user') messages.pop();
    for (const article of [...log.querySelectorAll('article')].reverse()) {
      if (article.dataset.role === 'user') break;
      article.remove();
    }
    answer();
  }, 'again');
}
function showFailure(text) {
  const failure = make('div', text + ' ');
  failure.className = 'failure';
  failure.setAttribute('role', 'alert');
  addButton(failure, 'Try again', () => { if (!running && page.isReady()) answer(); }, 'retry');
  log.append(failure);
  toEnd();
}
function setRunning(controller) {
  running = controller;
  at('send').hidden = Boolean(controller);
  at('stop').hidden = !controller;
}

const tell = text => { at('notice').textContent = text; };
const numberOf = (id, name, into) => { if (at(id).value !== '') into[name] = Number(at(id).value); };
// The settings of all pages, by the names that requests give them.
function samplingSettings() {
  const settings = {};
  numberOf('temperature', 'temperature', settings);
  numberOf('max-tokens', 'max_tokens', settings);
  numberOf('seed', 'seed', settings);
  return settings;
}
// The conversation as messages of a request. `contentOf` gives the content of one.
function turnsOf(list, contentOf) {
  const turns = list.map(message => ({role: message.role, content: contentOf(message), ...message.wire}));
  if (at('system').value) turns.unshift({role: 'system', content: at('system').value});
  return turns;
}

// Draws one answer while it comes. Returns what was said, and how it ended: {said, calls, failure}.
async function speak(signal, conversation) {
  const parts = addArticle('assistant');
  const drawing = new Drawing(parts.body);
  const said = {role: 'assistant', content: '', thoughts: ''};
  let thoughts = null, draft = null, drafted = '', frame = 0, counts = '', calls = null;
  const draw = () => {
    frame = 0;
    const follow = isAtEnd();
    drawing.draw(said.content);
    if (thoughts) thoughts.data = said.thoughts;
    if (draft) draft.textContent = drafted;
    if (follow) toEnd();
  };
  let failure = '';
  try {
    for await (const part of page.ask(messages, signal)) {
      if (part.counts) counts = part.counts;
      if (part.calls) calls = part.calls;
      if (part.draft) draft = draft || addDraft(parts);
      drafted = part.draft || '';
      if (part.thoughts) {
        thoughts = thoughts || addThoughts(parts);
        said.thoughts += part.thoughts;
      }
      said.content += part.text || '';
      frame = frame || requestAnimationFrame(draw);
    }
  } catch (error) {
    if (!signal.aborted) failure = error.message || String(error);
  }
  if (frame) cancelAnimationFrame(frame);
  if (draft) draft.remove();
  draft = null;
  if (messages !== conversation) return {};
  draw();
  if (!said.content && (failure || calls && !said.thoughts)) parts.article.remove();
  if (counts) {
    const line = make('div', counts);
    line.className = 'counts';
    parts.article.append(line);
  }
  return {said, calls, failure};
}
async function answer() {
  const controller = new AbortController();
  const {signal} = controller;
  const conversation = messages;
  removeExtras();
  setRunning(controller);
  let outcome = {};
  do {
    outcome = await speak(signal, conversation);
    if (messages !== conversation) break;
    const {said, calls, failure} = outcome;
    if (calls) {
      const results = await page.runCalls(calls, signal);
      if (messages !== conversation) break;
      messages.push({...said, wire: {tool_calls: calls}}, ...results);
    } else if (!failure || said.content) {
      messages.push(said);
    }
    keep();
  } while (outcome.calls && !signal.aborted);
  setRunning(null);
  if (messages !== conversation) return;  // a new one has begun
  if (outcome.failure) showFailure(outcome.failure);
  else addRegenerate();
  if (isAtEnd()) toEnd();
  box.focus();
}
function send() {
  const text = box.value;
  if (running || !text.trim() && !page.hasAttachments() || !page.isReady()) return;
  box.value = '';
  const said = {role: 'user', content: text, ...page.takeAttachments()};
  messages.push(said);
  keep();
  removeExtras();
  addUser(said);
  answer();
}
function newChat() {
  if (running) running.abort();
  messages = [];
  if (page.forget) page.forget();
  keep();
  log.replaceChildren();
  page.takeAttachments();
}

// Begins a page, which gives
//   ask(messages, signal)   an asynchronous iterator of {text, thoughts, draft, counts, calls}, each of them optional:
//                           pieces that are added, the canvas as it is, a line about the whole answer, and the calls of
//                           tools that it ends with
//   runCalls(calls, signal) where there are tools: the messages with the results, one for each call, drawn already
//   drawResult(message)     draws such a message of a conversation that was kept
//   forget()                a new conversation begins; may be missing
//   isReady()               whether a model can be asked now; if not, it says why
//   hasAttachments()        whether the next message has more than its text
//   takeAttachments()       what it has, as members of the message; it has nothing afterwards
//   storageKey              the key of the page's conversation in the storage of the session, which pages share
//   limitOfPictures()       the characters that the pictures of a conversation may have as data: URLs
function beginPage(own) {
  page = own;
  at('form').addEventListener('submit', event => { event.preventDefault(); send(); });
  at('stop').addEventListener('click', () => { if (running) running.abort(); box.focus(); });
  at('new').addEventListener('click', newChat);
  box.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  });
  document.addEventListener('keydown', event => { if (event.key === 'Escape' && running) running.abort(); });
  at('theme').addEventListener('click', () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
  });
  for (const message of JSON.parse(sessionStorage.getItem(page.storageKey) || '[]')) {
    messages.push(message);
    if (message.role === 'user') { addUser(message); continue; }
    if (message.role === 'tool') { page.drawResult(message); continue; }
    if (!message.content && !message.thoughts && message.wire) continue;
    const parts = addArticle('assistant');
    if (message.thoughts) addThoughts(parts).data = message.thoughts;
    new Drawing(parts.body).draw(message.content);
  }
  if (messages.length) addRegenerate();
}
