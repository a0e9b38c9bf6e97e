"""Finds the paragraphs of a text that answer a question: search.py MODEL TEXT QUESTION [COUNT]

MODEL is an embedding model (docs/embeddings.md); other models work less well. Prints the COUNT (5) best
paragraphs of the file TEXT, which blank lines separate: cosine, line, words.
"""

import re
import sys
from pathlib import Path

import numpy as np

import rullama


def paragraphs(text: str) -> list[tuple[int, str]]:
    """Each paragraph with the number of its first line."""
    found = re.finditer(r"\S.*?(?=\n\s*\n|\s*\Z)", text, re.DOTALL)
    return [(text.count("\n", 0, part.start()) + 1, " ".join(part[0].split())) for part in found]


def main() -> int:
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        return 2
    text = Path(sys.argv[2]).read_text(encoding="utf-8")
    count = int(sys.argv[4]) if len(sys.argv) == 5 else 5
    parts = paragraphs(text)
    try:
        with rullama.Model(sys.argv[1]) as model:
            document, query = ("document", "query") if model.info.encodes else ("", "")
            vectors = model.embed([part for _, part in parts], task=document)
            cosines = vectors @ model.embed(sys.argv[3], task=query)
    except rullama.Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    for best in np.argsort(-cosines, kind="stable")[:count]:
        line, part = parts[best]
        print(f"{cosines[best]:.4f}  {line:6}  {part[:70]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
