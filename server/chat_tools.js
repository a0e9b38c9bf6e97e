// Tools of MCP servers on the server's chat page (rullama serve --mcp). A call runs only after the user has agreed to it:
// its name and arguments are shown, as texts. After conversation.js.
// The token of the address that the server has printed; without it the page offers no tools.
function takeToken() {
  const found = /^#tools=([0-9a-f]{16,128})$/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem('tools', found[1]);
  history.replaceState(null, '', location.pathname);
}
takeToken();
addEventListener('hashchange', takeToken);
const toolHeaders = () => ({...headers(), 'X-Rullama-Tools': sessionStorage.getItem('tools')});
let offered = [];              // {server, name, tool}, of the last request
let missing = '';              // the notice of the last request
const refusedTools = new Set();  // definitions that the server does not take
const allowedTools = new Set();  // definitions that this conversation may call without asking
const definitionOf = tool => JSON.stringify(tool);

function refuseTool(tool, message) {
  refusedTools.add(definitionOf(tool));
  tell(shown(`The tool ${tool.name} of ${tool.server} cannot be used: ${message}`));
}
// The page talks without tools from now on.
function dropToken() {
  sessionStorage.removeItem('tools');
  tell('The server does not take the token of this page, which has no tools any more. ' +
       'Open the address that the server has printed, if it was started with --mcp.');
  return [];
}
async function listTools(signal) {
  if (!sessionStorage.getItem('tools')) return [];
  const response = await fetch('/mcp/tools', {headers: toolHeaders(), signal});
  if (response.status === 403 || response.status === 404) return dropToken();  // of an earlier server
  if (!response.ok) throw new Error((await failureOf(response)).message);
  const {tools, failures, left_out: leftOut} = await response.json();
  const notes = failures.map(({server, text}) => `${server}: ${text}`);
  if (leftOut) notes.push(`${leftOut} tools more than a request may have are left out`);
  const note = notes.length ? 'Tools are missing. ' + notes.join('; ') : '';
  if (note || at('notice').textContent === missing) tell(note);
  missing = note;
  offered = tools.filter(tool => !refusedTools.has(definitionOf(tool)));
  return offered;
}

// Characters that are not seen or that change the order of others, as escapes.
const HIDDEN = /(?![\t\n ])[\p{Cc}\p{Cf}\p{Cs}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\ufff0-\uffff]/gu;
const shown = text => text.replace(HIDDEN, c => `\\u{${c.codePointAt(0).toString(16)}}`);
function argumentsOf(call) {
  try {
    const value = JSON.parse(call.function.arguments || '{}');
    return value && typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch (wrong) {
    return null;
  }
}
const textOf = values => values ? JSON.stringify(values, null, 2) : 'Arguments that are not an object';

// An article about a call: {article, state}, whose state is a line.
function addCall(name, server, values) {
  const {article, body} = addArticle('tool');
  const state = make('div');
  state.className = 'counts';
  const heading = make('strong', shown(server ? `${name} of ${server}` : name));
  const text = make('pre', shown(textOf(values)));
  text.tabIndex = 0;  // it may have to be scrolled
  text.setAttribute('aria-label', 'Arguments');
  article.setAttribute('role', 'group');
  article.setAttribute('aria-label', shown(`Tool call ${name}`));
  article.tabIndex = -1;
  body.append(heading, text, state);
  return {article, state};
}
// Asks the user: 'once', 'always' or 'never'.
function askUser({article, state}, signal) {
  return new Promise(resolve => {
    const buttons = make('div');
    const decide = choice => {
      if (!buttons.isConnected) return;  // the user has decided already
      buttons.remove();
      state.textContent = '';
      resolve(choice);
    };
    for (const [text, choice] of [['Run once', 'once'], ['Run always in this chat', 'always'], ['Refuse', 'never']]) {
      const button = make('button', text);
      button.type = 'button';
      button.addEventListener('click', () => decide(choice));
      buttons.append(button, ' ');
    }
    state.textContent = 'The model asks to run this tool.';
    article.append(buttons);
    signal.addEventListener('abort', () => decide('never'));
    toEnd();
    article.focus();  // not a button: a key that was meant for the message must not agree
  });
}
function addResult(article, content) {
  const text = document.createTextNode(shown(content));
  const result = make('details', '', make('summary', 'Result'), text);
  result.className = 'thoughts';
  article.append(result);
}
async function runTool(call, values, signal) {
  const response = await fetch('/mcp/call', {method: 'POST', headers: toolHeaders(), signal,
      body: JSON.stringify({name: call.function.name, arguments: values})});
  if (!response.ok) return {content: (await failureOf(response)).message, failed: true};
  return response.json();
}
const STOPPED = {content: 'The user stopped this call.', failed: true};
// The result of a call, as the model gets it.
async function resultOf(call, drawn, found, values, signal) {
  if (!found) return {content: 'There is no such tool.', failed: true};
  if (!values) return {content: 'The arguments are not a JSON object.', failed: true};
  const definition = definitionOf(found);
  if (!allowedTools.has(definition)) {
    const choice = await askUser(drawn, signal);
    if (signal.aborted) return STOPPED;
    if (choice === 'never') return {content: 'The user refused this call.', failed: true};
    if (choice === 'always') allowedTools.add(definition);
  }
  drawn.state.textContent = 'It runs …';
  try {
    return await runTool(call, values, signal);
  } catch (error) {
    return signal.aborted ? STOPPED : {content: error.message, failed: true};
  }
}
// Some of the members that a page gives to beginPage().
const toolCalls = {
  async runCalls(calls, signal) {
    const results = [];
    for (const call of calls) {
      const found = offered.find(({tool}) => tool.function.name === call.function.name);
      const values = argumentsOf(call);
      const name = found ? found.name : call.function.name, server = found ? found.server : '';
      const message = {role: 'tool', name, server, values, wire: {tool_call_id: call.id}};
      if (signal.aborted) {  // the page may show another conversation by now
        results.push({...message, ...STOPPED});
        continue;
      }
      const drawn = addCall(name, server, values);
      const {content, failed} = await resultOf(call, drawn, found, values, signal);
      drawn.state.textContent = failed ? 'It failed.' : 'Done.';
      addResult(drawn.article, content);
      results.push({...message, content, failed});
    }
    return results;
  },
  drawResult({name, server, values, content, failed}) {
    const {article, state} = addCall(name, server, values);
    state.textContent = failed ? 'It failed.' : 'Done.';
    addResult(article, content);
  },
  forget() { allowedTools.clear(); },
};
