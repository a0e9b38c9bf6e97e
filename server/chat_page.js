// The server's chat page: asks this server. After markdown.js, conversation.js and pictures.js of web/page.
// ---- The model ----
let bodyLimit = Infinity;  // bytes of a request
async function readProperties() {
  const response = await fetch('/props', {headers: headers()});
  if (!response.ok) return;
  const {limits, models} = (await response.json()).rullama;
  bodyLimit = limits.max_body_bytes;
  const model = models.find(({id}) => id === at('model').value);
  // What a model takes that is not loaded is not known; to ask for it would load it.
  takePictures(!model || !model.loaded || model.modalities.vision);
}

// ---- Asking ----
function contentOf({content, pictures}) {
  if (!pictures) return content;
  const parts = pictures.map(({url}) => ({type: 'image_url', image_url: {url}}));
  return content ? [...parts, {type: 'text', text: content}] : parts;
}
function requestBody(messages, tools) {
  const body = {messages: turnsOf(messages, contentOf), stream: true,
                stream_options: {include_usage: true, include_drafts: true}, ...samplingSettings()};
  if (at('model').value) body.model = at('model').value;
  if (tools.length) body.tools = tools.map(({tool}) => tool);
  if (at('thinking').checked) body.chat_template_kwargs = {enable_thinking: true};
  return body;
}
function headers() {
  const fields = {'Content-Type': 'application/json'};
  if (at('key').value) fields.Authorization = 'Bearer ' + at('key').value;
  return fields;
}
async function* eventsOf(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    text += decoder.decode(value, {stream: true});
    const events = text.split('\n\n');
    text = events.pop();
    for (const event of events) {
      if (event.startsWith('data: ') && event !== 'data: [DONE]') yield JSON.parse(event.slice(6));
    }
  }
}
async function failureOf(response) {
  try { return (await response.json()).error; } catch (none) { return {message: 'The server answers with status ' + response.status}; }
}
function countsOf({timings, usage}) {
  const cached = usage && usage.prompt_tokens_details ? usage.prompt_tokens_details.cached_tokens : timings.cache_n;
  return `${timings.predicted_per_second.toFixed(1)} tokens per second, ${cached} of the prompt's tokens from the cache`;
}
// The answer to the request, without the tools that the server refuses.
async function requestAnswer(turns, tools, signal) {
  for (;;) {
    const response = await fetch('/v1/chat/completions',
        {method: 'POST', headers: headers(), body: JSON.stringify(requestBody(turns, tools)), signal});
    if (response.ok) return response;
    const {message, param} = await failureOf(response);
    const refused = /^tools\[(\d+)\]/.exec(param || '');
    if (!refused || !tools[refused[1]]) throw new Error(message);
    refuseTool(tools[refused[1]], message);
    tools = tools.filter((tool, index) => index !== Number(refused[1]));
  }
}
// Adds pieces of calls to those that came before.
function addCalls(calls, pieces) {
  for (const {index, id, function: {name, arguments: text}} of pieces || []) {
    const call = calls[index] = calls[index] || {id, type: 'function', function: {name, arguments: ''}};
    call.function.arguments += text || '';
  }
}
async function* ask(turns, signal) {
  const response = await requestAnswer(turns, await listTools(signal), signal);
  const calls = [];
  for await (const chunk of eventsOf(response)) {
    if (chunk.error) throw new Error(chunk.error.message);
    const choice = chunk.choices.length ? chunk.choices[0] : {delta: {}};
    const {delta} = choice;
    addCalls(calls, delta.tool_calls);
    yield {text: delta.content, thoughts: delta.reasoning_content, draft: chunk.draft && chunk.draft.text,
           counts: chunk.timings && countsOf(chunk), calls: choice.finish_reason === 'tool_calls' ? calls : null};
  }
}

// ---- Beginning ----
at('model').addEventListener('change', readProperties);
at('key').value = sessionStorage.getItem('key') || '';
at('key').addEventListener('change', () => { sessionStorage.setItem('key', at('key').value); listModels(); });
async function listModels() {
  const response = await fetch('/v1/models', {headers: headers()});
  if (!response.ok) return;
  const models = (await response.json()).data.map(model => model.id);
  at('model').replaceChildren(...models.map(id => { const option = make('option', id); option.value = id; return option; }));
  at('model').hidden = models.length < 2;
  await readProperties();
}
beginPage({ask, isReady: () => true, ...attachments, ...toolCalls, storageKey: 'chat', limitOfPictures: () => bodyLimit});
listModels();
