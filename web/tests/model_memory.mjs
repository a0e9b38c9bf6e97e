// model_memory.mjs MODULE_FOLDER MODEL [TOKENS [SETTING=VALUE...]]: opens a model in node where it is, and prints the bytes
// of the module's memory and the time of a token. No test: for the figures of docs/browser.md.
import { addHostFile, answerOf, openModule } from "./module.mjs";

const [folder, model, tokens = "4", ...pairs] = process.argv.slice(2);
const settings = Object.fromEntries(pairs.map((pair) => pair.split(/=(.*)/s).slice(0, 2)));
const { call, fs, memory } = await openModule(folder);
const megabytes = () => `${(memory() / 1e6).toFixed(0)} MB`;
let bytes = 0;
addHostFile(fs, "model.gguf", model, (offset, count) => { bytes += count; });
const { engine, info } = await call({ call: "open", model: "/model.gguf", settings });
console.log(`${info.architecture}, ${(info.file_bytes / 1e6).toFixed(0)} MB: opened in ${info.load_seconds.toFixed(1)} s, ` +
  `${megabytes()} of memory, ${(bytes / 1e6).toFixed(0)} MB read`);
const answer = await answerOf(call, engine, { prompt: "The sky is", max_tokens: Number(tokens) });
console.log(`${answer.prompt_tokens} tokens of the prompt in ${answer.prompt_seconds.toFixed(1)} s, then ` +
  `${(1000 * answer.generate_seconds / (answer.tokens - 1)).toFixed(0)} ms per token, ${megabytes()} of memory, ` +
  `${(bytes / 1e6).toFixed(0)} MB read`);
process.exit(0);
