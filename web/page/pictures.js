// The pictures of the next message on the pages on which people chat. After conversation.js.
const FORMATS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/bmp'];
let pictures = [];          // {name, url}, as data: URLs
let takesPictures = false;  // the chosen model
function takePictures(takes) {
  takesPictures = takes;
  at('attach').hidden = !takes;
}
function drawPictures() {
  at('pictures').replaceChildren(...pictures.map(picture => {
    const remove = make('button', 'Remove');
    remove.type = 'button';
    remove.setAttribute('aria-label', 'Remove ' + picture.name);
    remove.addEventListener('click', () => setPictures(pictures.filter(other => other !== picture)));
    return make('li', '', drawPicture(picture), remove);
  }));
  at('pictures').hidden = !pictures.length;
}
function setPictures(list) {
  pictures = list;
  tell('');
  drawPictures();
  box.focus();
}
const dataUrlOf = file => new Promise((done, failed) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.onerror = () => failed(reader.error);
  reader.readAsDataURL(file);
});
// The pictures of all messages go with every request.
function fits(file) {
  const all = [...messages.flatMap(message => message.pictures || []), ...pictures];
  return all.reduce((sum, picture) => sum + picture.url.length, file.size * 4 / 3) < page.limitOfPictures() * 0.95;
}
async function addPictures(files) {
  setPictures(pictures);
  if (!takesPictures) return tell('This model takes no pictures.');
  for (const file of files) {
    if (!FORMATS.includes(file.type)) {
      tell(file.name + ' is not a PNG, JPEG, WebP, GIF or BMP file.');
    } else if (!fits(file)) {
      tell(`${file.name} is too large: all pictures of a chat may have ${Math.floor(page.limitOfPictures() * 0.7 / 1e6)} MB.`);
    } else {
      try {
        const url = await dataUrlOf(file);
        pictures.push({name: file.name, url});  // of the message that is written now
      } catch (unreadable) {
        tell(file.name + ' cannot be read.');
      }
    }
  }
  drawPictures();
}
// Some of the members that a page gives to beginPage().
const attachments = {
  hasAttachments: () => pictures.length > 0,
  takeAttachments() {
    const taken = pictures.length ? {pictures} : {};
    setPictures([]);
    return taken;
  },
};
at('attach').addEventListener('click', () => at('files').click());
at('files').addEventListener('change', () => { addPictures([...at('files').files]); at('files').value = ''; });
const hasFiles = event => event.dataTransfer && event.dataTransfer.types.includes('Files');
document.addEventListener('dragover', event => { if (hasFiles(event)) event.preventDefault(); });
document.addEventListener('drop', event => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  addPictures([...event.dataTransfer.files]);
});
box.addEventListener('paste', event => {
  const files = [...event.clipboardData.files];
  if (!files.length) return;
  event.preventDefault();
  addPictures(files);
});
