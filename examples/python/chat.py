"""Answers one question and shows it while it is written: chat.py MODEL QUESTION [BACKEND]"""

import sys

import rullama


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with rullama.Model(sys.argv[1], *sys.argv[3:]) as model:
            messages = [{"role": "user", "content": sys.argv[2]}]
            with model.chat(messages, stream=True, max_tokens=64, temperature=0) as answer:
                for event in answer:
                    if event.kind == "text":
                        print(event.text, end="", flush=True)
                print()
    except rullama.Error as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
