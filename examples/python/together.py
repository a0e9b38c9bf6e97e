"""Continues several prompts at once with asyncio: together.py MODEL PROMPT..."""

import asyncio
import sys

import rullama


async def main() -> None:
    prompts = sys.argv[2:]
    with rullama.Model(sys.argv[1], "cpu", slots=max(1, len(prompts))) as model:

        async def run(prompt: str) -> str:
            text = ""
            async with model.astream(prompt, max_tokens=16, temperature=0) as answer:
                async for event in answer:
                    if event.kind == "text":
                        text += event.text
            return text

        for text in await asyncio.gather(*(run(prompt) for prompt in prompts)):
            print(text)


if __name__ == "__main__":
    asyncio.run(main())
