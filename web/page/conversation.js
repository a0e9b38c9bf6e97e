// The conversation of the pages on which people chat: what was said, how it is drawn while it comes, stopping and
// asking again. After markdown.js.
let messages = [];   // {role, content, thoughts, pictures}
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
    if (messages.length && messages[messages.length - 1].role === 'assistant') {
      messages.pop();
      const answers = log.querySelectorAll('article[data-role=assistant]');
      answers[answers.length - 1].remove();
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
  const turns = list.map(message => ({role: message.role, content: contentOf(message)}));
  if (at('system').value) turns.unshift({role: 'system', content: at('system').value});
  return turns;
}

async function answer() {
  const controller = new AbortController();
  const conversation = messages;
  removeExtras();
  setRunning(controller);
  const parts = addArticle('assistant');
  const drawing = new Drawing(parts.body);
  const said = {role: 'assistant', content: '', thoughts: ''};
  let thoughts = null, draft = null, drafted = '', frame = 0, counts = '';
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
    for await (const part of page.ask(messages, controller.signal)) {
      if (part.counts) counts = part.counts;
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
    if (!controller.signal.aborted) failure = error.message || String(error);
  }
  if (frame) cancelAnimationFrame(frame);
  if (draft) draft.remove();
  draft = null;
  setRunning(null);
  if (messages !== conversation) return;  // a new one has begun
  draw();
  if (failure && !said.content) parts.article.remove();
  else messages.push(said);
  keep();
  if (counts) {
    const line = make('div', counts);
    line.className = 'counts';
    parts.article.append(line);
  }
  if (failure) showFailure(failure);
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
  keep();
  log.replaceChildren();
  page.takeAttachments();
}

// Begins a page, which gives
//   ask(messages, signal)   an asynchronous iterator of {text, thoughts, draft, counts}, each of them optional: pieces
//                           that are added, the canvas as it is, and a line about the whole answer
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
    const parts = addArticle('assistant');
    if (message.thoughts) addThoughts(parts).data = message.thoughts;
    new Drawing(parts.body).draw(message.content);
  }
  if (messages.length) addRegenerate();
}
