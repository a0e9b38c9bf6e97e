// An error of the engine or of a download, with an id of docs/errors.md.
export class RullamaError extends Error {
  constructor({ id, kind, message }) {
    super(message);
    this.name = "RullamaError";
    this.id = id;
    this.kind = kind;
  }
}
