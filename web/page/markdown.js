// The pages on which people chat (page.html) begin with this: elements by their ids, and texts in Markdown as elements.
// No text of a model or a user is ever parsed as HTML.
const at = id => document.getElementById(id);
const log = at('log'), box = at('message');
const make = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};

// ---- Markdown, as elements and texts only ----
const SCHEMES = ['http:', 'https:', 'mailto:'];
function linkTo(address, text) {
  let url = null;
  try { url = new URL(address); } catch (wrong) { /* no address */ }
  if (!url || !SCHEMES.includes(url.protocol)) return document.createTextNode(text);
  const link = make('a', text);
  link.href = url.href;
  link.rel = 'noopener noreferrer';
  link.target = '_blank';
  return link;
}
const INLINE = new RegExp([
  '(?<ticks>`+)(?<code>[^]*?[^`])\\k<ticks>(?!`)',
  '!?\\[(?<label>[^\\]\\n]*)\\]\\((?<target>[^()\\s]*(?:\\([^()\\s]*\\)[^()\\s]*)*)\\)',
  '<(?<address>(?:https?:|mailto:)[^<>\\s]*)>',
  '\\*\\*(?<strong>[^*\\n](?:[^\\n]*?[^*\\n])?)\\*\\*(?!\\*)',
  '(?<![\\w*])\\*(?<em>[^*\\s](?:[^*\\n]*[^*\\s])?)\\*(?![\\w*])',
  '(?<!\\w)_(?<em2>[^_\\s](?:[^_\\n]*[^_\\s])?)_(?!\\w)',
].join('|'), 'gu');
function inline(text, into, depth = 0) {
  let end = 0;
  for (const match of depth > 4 ? [] : text.matchAll(INLINE)) {
    into.append(text.slice(end, match.index));
    end = match.index + match[0].length;
    const g = match.groups;
    if (g.code !== undefined) into.append(make('code', g.code.trim() || g.code));
    else if (g.target !== undefined) into.append(linkTo(g.target, g.label || g.target));
    else if (g.address !== undefined) into.append(linkTo(g.address, g.address));
    else if (g.strong !== undefined) into.append(inline(g.strong, make('strong'), depth + 1));
    else into.append(inline(g.em ?? g.em2, make('em'), depth + 1));
  }
  into.append(text.slice(end));
  return into;
}
const KINDS = [
  ['fence', /^ {0,3}(```+|~~~+)/], ['heading', /^ {0,3}#{1,6}\s/], ['quote', /^ {0,3}>/],
  ['list', /^\s*(?:[-*+]|\d{1,9}[.)])\s/], ['table', /^\s*\|/], ['blank', /^\s*$/],
];
const kindOf = line => (KINDS.find(([, pattern]) => pattern.test(line)) || ['text'])[0];
// The blocks of a text from `offset` on: {kind, start, lines}. Blocks of blank lines are left out.
function blocksOf(text, offset) {
  const blocks = [];
  let fence = null, start = offset;
  for (const line of text.slice(offset).split('\n')) {
    const last = blocks[blocks.length - 1];
    const kind = kindOf(line);
    if (fence) {
      last.lines.push(line);
      if (line.trim().startsWith(fence) && !line.trim().replace(/^(`+|~+)/, '')) fence = null;
    } else if (kind === 'fence') {
      fence = line.trim().match(/^(`+|~+)/)[0];
      blocks.push({kind, start, lines: [line]});
    } else if (last && last.kind === kind && kind !== 'heading') {
      last.lines.push(line);
    } else if (last && last.kind === 'list' && kind === 'text' && /^\s/.test(line)) {
      last.lines.push(line);
    } else {
      blocks.push({kind, start, lines: [line]});
    }
    start += line.length + 1;
  }
  return blocks.filter(block => block.kind !== 'blank');
}
function codeBlock(lines) {
  const closed = lines.length > 1 && kindOf(lines[lines.length - 1]) === 'fence';
  const code = lines.slice(1, closed ? -1 : undefined).join('\n');
  const copy = make('button', 'Copy');
  copy.type = 'button';
  copy.addEventListener('click', () => navigator.clipboard && navigator.clipboard.writeText(code));
  return make('div', '', make('pre', '', make('code', code)), copy);
}
function tableOf(lines) {
  const cells = line => line.trim().replace(/^\||\|$/g, '').split('|').map(cell => cell.trim());
  const ruled = lines.length > 1 && cells(lines[1]).every(cell => /^:?-+:?$/.test(cell));
  const table = make('table');
  lines.forEach((line, i) => {
    if (ruled && i === 1) return;
    const row = make('tr');
    for (const cell of cells(line)) row.append(inline(cell, make(ruled && i === 0 ? 'th' : 'td')));
    table.append(row);
  });
  return table;
}
function listOf(lines) {
  const list = make(/^\s*\d/.test(lines[0]) ? 'ol' : 'ul');
  const items = [];
  for (const line of lines) {
    const marker = line.match(KINDS[3][1]);
    if (marker) items.push(line.slice(marker[0].length));
    else if (items.length) items[items.length - 1] += ' ' + line.trim();
  }
  for (const item of items) list.append(inline(item, make('li')));
  return list;
}
function drawBlock({kind, lines}) {
  switch (kind) {
    case 'fence': return codeBlock(lines);
    case 'heading': {
      const marks = lines[0].trim().match(/^#+/)[0].length;
      return inline(lines[0].trim().slice(marks).trim(), make('h' + Math.min(marks + 1, 6)));
    }
    case 'quote': {
      const quote = make('blockquote');
      for (const block of blocksOf(lines.map(line => line.replace(/^ {0,3}> ?/, '')).join('\n'), 0)) {
        quote.append(block.kind === 'quote' ? inline(block.lines.join('\n'), make('p')) : drawBlock(block));
      }
      return quote;
    }
    case 'list': return listOf(lines);
    case 'table': return tableOf(lines);
    default: return inline(lines.join('\n'), make('p'));
  }
}
// Draws a text that grows: a block is drawn once if another one has begun after it.
class Drawing {
  constructor(body) { this.body = body; this.offset = 0; this.open = []; }
  draw(text) {
    for (const node of this.open) node.remove();
    const blocks = blocksOf(text, this.offset);
    this.open = [];
    blocks.forEach((block, i) => {
      const node = drawBlock(block);
      this.body.append(node);
      if (i === blocks.length - 1) { this.open = [node]; this.offset = block.start; }
    });
  }
}
