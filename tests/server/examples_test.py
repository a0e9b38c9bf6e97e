#!/usr/bin/env python3
"""examples_test.py --program RULLAMA --model FILE --document docs/server.md: runs the commands of the document.

The model and the port are those of the test; everything else is as it is written there.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from served import Server, wait_until

ARGUMENTS = argparse.Namespace()
KEY_A, KEY_B = "key-of-ann", "key-of-bob"
# More than a chunk of 512 tokens, of which a snapshot is kept.
LONG = "It was in July, 1805, and the speaker was the well-known Anna Pavlovna. " * 24


def blocks(language):
    """The code blocks of the document."""
    text = Path(ARGUMENTS.document).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def command_lines(block):
    """The commands of a block, continued lines joined."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def write_adapter(folder):
    """An adapter of rank 1 for blk.0.ffn_down of the tiny model."""
    inputs, outputs = 512, 256
    prefix = "base_model.model.model.layers.0.mlp.down_proj.lora_"
    header = json.dumps(
        {
            prefix + "A.weight": {"dtype": "F32", "shape": [1, inputs], "data_offsets": [0, 4 * inputs]},
            prefix + "B.weight": {
                "dtype": "F32",
                "shape": [outputs, 1],
                "data_offsets": [4 * inputs, 4 * (inputs + outputs)],
            },
        }
    ).encode()
    values = struct.pack(f"<{inputs + outputs}f", *[0.25] * (inputs + outputs))
    folder.mkdir(parents=True)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + values)
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 4, "target_modules": ["down_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


class DocumentServer(Server):
    """A server with `flags` on one thread of the processor."""

    def __init__(self, flags, folder):
        super().__init__(ARGUMENTS.program, [*flags, "--backend", "cpu", "-t", "1", "-c", "1024"], folder)

    def run(self, command, folder):
        """What a command of the document prints, sent to this server."""
        command = command.replace(":11435", f":{self.port}")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stderr}")
        return done.stdout

    def complete(self, prompt, key):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/completions",
            json.dumps({"prompt": prompt, "max_tokens": 1}).encode(),
            {"Authorization": f"Bearer {key}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]


def flags_of(command):
    """The flags of a `rullama serve` of the document, with the model of the test."""
    words = command.split()
    assert words[:2] == ["rullama", "serve"], command
    return [ARGUMENTS.model if word.startswith("gemma4:") else word for word in words[2:]]


class DocumentTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_the_first_example_is_answered(self):
        serve, curl = command_lines(blocks("sh")[0])
        with DocumentServer(flags_of(serve), self.folder) as server:
            answer = json.loads(server.run("curl -s " + curl.removeprefix("curl "), self.folder))
        self.assertEqual(answer["object"], "chat.completion")
        self.assertTrue(answer["choices"][0]["message"]["content"])

    def test_the_example_of_messages_is_answered(self):
        (curl,) = command_lines(next(b for b in blocks("sh") if "/v1/messages" in b))
        curl = curl.replace("curl ", "curl -s ", 1).replace("gemma4:e2b", Path(ARGUMENTS.model).stem)
        with DocumentServer(["-m", ARGUMENTS.model], self.folder) as server:
            answer = json.loads(server.run(curl, self.folder))
        self.assertEqual(answer["type"], "message")
        self.assertTrue(answer["content"][0]["text"])

    def test_the_example_of_evaluation_scores_the_prompt(self):
        (curl,) = command_lines(next(b for b in blocks("sh") if '"echo"' in b))
        with DocumentServer(["-m", ARGUMENTS.model], self.folder) as server:
            choice = json.loads(server.run(curl.replace("curl ", "curl -s ", 1), self.folder))["choices"][0]
        self.assertEqual(choice["text"], "The sky is blue")
        self.assertEqual("".join(choice["logprobs"]["tokens"]), "The sky is blue")
        self.assertTrue(all(value < 0 for value in choice["logprobs"]["token_logprobs"]))

    def test_the_example_of_tools_offers_them(self):
        servers = json.loads(next(b for b in blocks("json") if "mcpServers" in b))
        fake = [sys.executable, "-B", str(Path(__file__).with_name("fake_mcp.py")), "good"]
        self.assertEqual(set(servers["mcpServers"]["search"]), {"url", "headers"})
        servers["mcpServers"]["notes"].update(command=fake[0], args=fake[1:])  # what npx would download
        servers["mcpServers"]["search"]["url"] = "http://127.0.0.1:9/mcp"  # where nobody listens
        Path(self.folder, "tools.json").write_text(json.dumps(servers))
        (serve,) = command_lines(next(b for b in blocks("sh") if "--mcp " in b))
        os.environ["SEARCH_KEY"] = "key"
        with DocumentServer(flags_of(serve), self.folder) as server:
            wait_until(lambda: "#tools=" in server.log.read_text())
            token = re.search(r"chat with tools at http://127.0.0.1:\d+/#tools=(\w+)", server.log.read_text())[1]
            quiet = f"curl -s http://127.0.0.1:11435/mcp/tools -H 'X-Rullama-Tools: {token}'"

            def tools():
                return json.loads(server.run(quiet, self.folder))["tools"]

            wait_until(tools)
            self.assertEqual(tools()[0]["tool"]["function"]["name"], "notes__echo")

    def test_the_example_of_adapters_changes_answers(self):
        serve, listed, asked, named, set_scales = command_lines(next(b for b in blocks("sh") if "--lora " in b))
        for name in ("support", "poems"):
            write_adapter(Path(self.folder, "adapters", name))
        quiet = [line.replace("curl ", "curl -s ", 1) for line in (listed, asked, named, set_scales)]
        quiet[2] = quiet[2].replace("gemma4:e2b", Path(ARGUMENTS.model).stem)
        with DocumentServer(flags_of(serve), self.folder) as server:
            adapters = json.loads(server.run(quiet[0], self.folder))
            self.assertEqual([(a["path"], a["scale"]) for a in adapters], [("support", 0), ("poems", 0)])
            texts = [json.loads(server.run(line, self.folder))["choices"][0]["text"] for line in quiet[1:3]]
            self.assertTrue(all(texts))
            self.assertEqual(json.loads(server.run(quiet[3], self.folder)), {"success": True})
            self.assertEqual(json.loads(server.run(quiet[0], self.folder))[1]["scale"], 0.5)

    def test_the_example_of_slots_restores_a_prompt(self):
        serve, *curls = command_lines(next(b for b in blocks("sh") if "--slot-save-path" in b))
        save, restore, erase = (curl.replace("curl ", "curl -s ", 1) for curl in curls)
        Path(self.folder, "slots").mkdir()
        with DocumentServer([*flags_of(serve), "--slots", "1"], self.folder) as server:
            server.complete(LONG, KEY_A)
            saved = json.loads(server.run(save, self.folder))
            self.assertGreater(json.loads(server.run(erase, self.folder))["n_erased"], 512)
            self.assertEqual(server.complete("x", KEY_A), 0)
        with DocumentServer([*flags_of(serve), "--slots", "1"], self.folder) as server:
            restored = json.loads(server.run(restore, self.folder))
            self.assertEqual(restored["n_restored"], saved["n_saved"])
            self.assertGreaterEqual(server.complete(LONG + "A", KEY_A), 512)

    def test_the_example_of_keys_lets_in_who_has_one(self):
        keys, serve = command_lines(next(b for b in blocks("sh") if "api-key-file" in b))
        curl = next(b for b in blocks("sh") if "Bearer" in b)
        subprocess.run(["bash", "-c", keys], cwd=self.folder, check=True)
        self.assertEqual(os.stat(f"{self.folder}/keys").st_mode & 0o777, 0o600)
        with DocumentServer(flags_of(serve), self.folder) as server:
            models = json.loads(server.run(curl.replace("curl ", "curl -s ", 1), self.folder))
            self.assertEqual(len(models["data"]), 1)
            with self.assertRaises(urllib.error.HTTPError) as refused:
                server.complete("x", "another-key")
            self.assertEqual(refused.exception.code, 401)
            refused.exception.close()

    def test_the_example_of_several_models_serves_each(self):
        (serve,) = command_lines(next(b for b in blocks("sh") if "--max-loaded-models" in b))
        for name in ("e2b", "e4b"):
            os.symlink(os.path.abspath(ARGUMENTS.model), f"{self.folder}/{name}.gguf")
        flags = [re.sub(r"^gemma4:(\w+)$", r"\1.gguf", word) for word in serve.split()[2:]]
        with DocumentServer(flags, self.folder) as server:
            for name in ("e4b", "e2b"):
                body = json.dumps({"model": name, "prompt": "a", "max_tokens": 1})
                answer = json.loads(server.run(f"curl -s http://127.0.0.1:11435/v1/completions -d '{body}'", self.folder))
                self.assertEqual((answer["model"], answer["usage"]["completion_tokens"]), (name, 1))
            loaded = json.loads(server.run("curl -s http://127.0.0.1:11435/api/ps", self.folder))["models"]
            self.assertEqual({model["name"] for model in loaded}, {"e2b", "e4b"})

    def test_settings_of_the_example_with_several_models_are_known(self):
        (block,) = [b for b in blocks("yaml") if "server:" in b]
        Path(self.folder, "config.yaml").write_text(block)
        done = subprocess.run(
            [ARGUMENTS.program, "config", "--config", "config.yaml"], cwd=self.folder, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_clients_with_different_keys_share_no_prompt(self):
        Path(self.folder, "keys").write_text(f"ann:{KEY_A}\nbob:{KEY_B}\n")
        os.chmod(f"{self.folder}/keys", 0o600)
        with DocumentServer(["-m", ARGUMENTS.model, "--api-key-file", "keys", "--slots", "2"], self.folder) as server:
            self.assertEqual(server.complete(LONG, KEY_A), 0)
            self.assertGreaterEqual(server.complete(LONG + "A", KEY_A), 512)
            self.assertEqual(server.complete(LONG + "B", KEY_B), 0)
            self.assertGreaterEqual(server.complete(LONG + "C", KEY_B), 512)
            self.assertGreaterEqual(server.complete(LONG + "D", KEY_A), 512)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("program", "model", "document"):
        parser.add_argument(f"--{name}", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=["examples_test.py", *rest])
