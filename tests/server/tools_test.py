#!/usr/bin/env python3
"""tools_test.py --program RULLAMA --model FILE --environments FOLDER --browser FOLDER: `rullama serve --mcp` with servers
that the Python library of MCP makes, over both transports, and the chat page in a browser. The library is that of
requirements.txt, in a Python environment of its own in --environments; --browser has browser.py.
"""

import argparse
import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from served import Server, wait_until

ARGUMENTS = argparse.Namespace()
HERE = Path(__file__).resolve().parent
# The model's words are those of the test: a call, then what came of it.
ANSWERS = """
const real = window.fetch;
window.asked = [];
window.fetch = async (url, init) => {
  if (!String(url).endsWith('/v1/chat/completions')) return real(url, init);
  const body = JSON.parse(init.body);
  window.asked.push(body);
  const last = body.messages[body.messages.length - 1];
  const call = {index: 0, id: 'c' + window.asked.length, type: 'function', function: {name: 'real__add', arguments: ''}};
  const deltas = last.role === 'tool' ? [{content: 'It said ' + last.content}] :
      [{tool_calls: [call]}, {tool_calls: [{index: 0, function: {arguments: JSON.stringify(window.values)}}]}];
  const chunk = (delta, reason) => 'data: ' + JSON.stringify({choices: [{index: 0, delta, finish_reason: reason}]}) + '\\n\\n';
  const text = deltas.map(delta => chunk(delta, null)).join('') + chunk({}, last.role === 'tool' ? 'stop' : 'tool_calls');
  return new Response(text + 'data: [DONE]\\n\\n', {headers: {'Content-Type': 'text/event-stream'}});
};
window.values = {a: 2, b: 3, note: '\\u202e<b>x</b>\\u034f\\u2800'};
"""


def environment():
    """The Python of an environment with the packages of requirements.txt."""
    packages = HERE / "requirements.txt"
    folder = ARGUMENTS.environments / hashlib.sha256(packages.read_bytes()).hexdigest()[:16]
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", packages], check=True)
        (folder / "ready").touch()
    return str(python)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ToolServer(Server):
    """A server of the tiny model with tools of `servers`."""

    def __init__(self, servers, folder, *flags):
        file = Path(folder, "tools.json")
        file.write_text(json.dumps({"mcpServers": servers}))
        common = ["-m", str(ARGUMENTS.model), "--backend", "cpu", "-t", "1", "-c", "512", "--mcp", str(file)]
        super().__init__(str(ARGUMENTS.program), [*common, *flags], folder)
        wait_until(lambda: "#tools=" in self.log.read_text())
        self.address = re.search(r"chat with tools at (\S+)", self.log.read_text())[1]
        self.token = self.address.split("=")[1]

    def ask(self, path, body=None, **fields):
        headers = {"X-Rullama-Tools": self.token, **{name.replace("_", "-"): value for name, value in fields.items()}}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def tools(self):
        """The names of the tools, once all servers are there."""
        offer = {}

        def complete():
            offer.update(self.ask("/mcp/tools"))
            return not offer["failures"]

        wait_until(complete)
        return {tool["tool"]["function"]["name"]: tool for tool in offer["tools"]}

    def calls(self):
        """How many calls have ended."""
        return self.log.read_text().count("route=/mcp/call")

    def call(self, name, **values):
        return self.ask("/mcp/call", {"name": name, "arguments": values})


class ServedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        python = environment()
        cls.stdio = {"real": {"command": python, "args": [str(HERE / "real_mcp.py"), "stdio"], "env": {"OWN": "1"}}}
        cls.port = free_port()
        cls.http_process = subprocess.Popen(
            [python, str(HERE / "real_mcp.py"), "http", str(cls.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        cls.http = {"web": {"type": "http", "url": f"http://127.0.0.1:{cls.port}/mcp", "headers": {"X-Key": "k"}}}

    @classmethod
    def tearDownClass(cls):
        cls.http_process.terminate()
        cls.http_process.wait()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


class ToolsTest(ServedTest):
    def refusal(self, server, path, body=None, **fields):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            server.ask(path, body, **fields)
        error = json.load(refused.exception)["error"]
        refused.exception.close()
        return refused.exception.code, error["code"]

    def test_tools_of_both_transports_are_called(self):
        os.environ["RULLAMA_SECRET_OF_TEST"] = "x"
        with ToolServer({**self.stdio, **self.http}, self.folder) as server:
            tools = server.tools()
            for name in ("real", "web"):
                add = tools[f"{name}__add"]
                self.assertEqual((add["server"], add["name"]), (name, "add"))
                self.assertEqual(add["tool"]["function"]["description"], "Adds two numbers.")
                self.assertEqual(server.call(f"{name}__add", a=2, b=3), {"content": "5", "failed": False})
                self.assertTrue(server.call(f"{name}__add", a="x")["failed"])
                failed = server.call(f"{name}__fail")
                self.assertTrue(failed["failed"])
                self.assertIn("Error executing tool fail", failed["content"])
            variables = server.call("real__variables")["content"].split()
            self.assertIn("OWN", variables)
            self.assertIn("PATH", variables)
            self.assertNotIn("RULLAMA_SECRET_OF_TEST", variables)

    def test_a_client_that_leaves_ends_its_call(self):
        with ToolServer({**self.stdio, **self.http}, self.folder) as server:
            server.tools()
            for name in ("real", "web"):
                body = json.dumps({"name": f"{name}__sleep", "arguments": {"seconds": 600}})
                head = f"POST /mcp/call HTTP/1.1\r\nHost: localhost\r\nX-Rullama-Tools: {server.token}\r\n"
                calls = server.calls()
                with socket.create_connection(("127.0.0.1", server.port)) as connection:
                    connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
                    time.sleep(0.5)
                wait_until(lambda before=calls: server.calls() == before + 1)
                self.assertEqual(server.call(f"{name}__add", a=1, b=1)["content"], "2")

    def test_only_the_bearer_of_the_token_may_call(self):
        with ToolServer(self.stdio, self.folder) as server:
            server.tools()
            body = {"name": "real__add", "arguments": {"a": 1, "b": 1}}
            for path, sent in (("/mcp/tools", None), ("/mcp/call", body)):
                for wrong in ("", "x", server.token[:-1], server.token + "0"):
                    answer = self.refusal(server, path, sent, X_Rullama_Tools=wrong)
                    self.assertEqual(answer, (403, "tools_forbidden"))
                origin = self.refusal(server, path, sent, Origin="https://evil.example")
                self.assertEqual(origin, (403, "origin_forbidden"))
                host = self.refusal(server, path, sent, Host="evil.example")
                self.assertEqual(host, (403, "host_forbidden"))
            self.assertEqual(self.refusal(server, "/mcp/call", {"name": "other"}), (404, "tool_not_found"))
            self.assertEqual(self.refusal(server, "/mcp/call", {}), (400, "missing_required_parameter"))
            self.assertEqual(self.refusal(server, "/mcp/call", {"name": "x", "arguments": 1}), (400, "invalid_type"))

    def test_pages_of_allowed_origins_have_no_tools(self):
        with ToolServer(self.stdio, self.folder, "--allowed-origin", "https://chat.example") as server:
            answer = self.refusal(server, "/mcp/tools", Origin="https://chat.example")
            self.assertEqual(answer, (403, "origin_forbidden"))

    def test_keys_are_asked_for_too(self):
        Path(self.folder, "keys").write_text("ann:key-of-ann\n")
        os.chmod(f"{self.folder}/keys", 0o600)
        with ToolServer(self.stdio, self.folder, "--api-key-file", "keys") as server:
            self.assertEqual(self.refusal(server, "/mcp/tools")[0], 401)
            self.assertIn("tools", server.ask("/mcp/tools", Authorization="Bearer key-of-ann"))

    def test_there_are_no_tools_without_the_flag(self):
        with Server(str(ARGUMENTS.program), ["-m", str(ARGUMENTS.model), "--backend", "cpu"], self.folder) as server:
            request = urllib.request.Request(f"http://127.0.0.1:{server.port}/mcp/tools")
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=60)
            self.assertEqual(refused.exception.code, 404)
            refused.exception.close()

    def test_programs_end_with_the_server(self):
        shell = {"shell": {"command": "sh", "args": ["-c", "sleep 600 & echo $! > pid; wait"]}}
        with ToolServer(shell, self.folder):
            pid = Path(self.folder, "pid")
            wait_until(lambda: pid.exists() and pid.read_text().strip())
            number = int(pid.read_text())

        def is_gone():
            stat = Path(f"/proc/{number}/stat")
            return not stat.exists() or ") Z " in stat.read_text()

        wait_until(is_gone)

    def test_a_bad_file_is_refused_at_the_start(self):
        file = Path(self.folder, "tools.json")
        for text, code in (("{", 2), ('{"mcpServers": {"a": {"command": "x", "url": "y"}}}', 2), (None, 6)):
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            done = subprocess.run(
                [ARGUMENTS.program, "serve", "-m", ARGUMENTS.model, "--mcp", file], capture_output=True, text=True
            )
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(str(file), done.stderr)


class PageTest(ServedTest):
    """What a person sees."""

    def setUp(self):
        super().setUp()
        sys.path.insert(0, str(ARGUMENTS.browser))
        from browser import Browser

        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def open(self, address):
        self.browser.command("Page.addScriptToEvaluateOnNewDocument", source=ANSWERS)
        self.browser.open(address)

    def js(self, script):
        return self.browser.run(script)

    def press(self, keys):
        actions = [{"type": "keyDown", "value": key} for key in keys]
        actions += [{"type": "keyUp", "value": key} for key in keys]
        self.browser.send("POST", "/actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def say(self, text):
        wait_until(lambda: not self.js("return document.getElementById('send').hidden"))
        self.js(f"document.getElementById('message').value = {json.dumps(text)}; document.getElementById('send').click()")

    def buttons(self):
        return self.js("return [...document.querySelectorAll('article[data-role=tool] button')].map(b => b.textContent)")

    def choose(self, text):
        wait_until(lambda: text in self.buttons())
        self.js(
            "[...document.querySelectorAll('article[data-role=tool] button')]"
            f".find(b => b.textContent === {json.dumps(text)}).click()"
        )

    def answers(self):
        return self.js(
            "return [...document.querySelectorAll('article[data-role=assistant] .body')].map(e => e.textContent)"
        )

    def test_calls_run_after_consent(self):
        with ToolServer(self.stdio, self.folder) as server:
            server.tools()
            self.open(server.address)
            self.assertEqual(self.js("return location.hash"), "", "the token does not stay in the address")
            self.say("Add")
            wait_until(self.buttons)
            self.assertEqual(self.buttons(), ["Run once", "Run always in this chat", "Refuse"])
            article = "document.querySelector('article[data-role=tool]')"
            text = self.js(f"return {article}.textContent")
            for part in ("add of real", '"a": 2', "\\u{202e}<b>x</b>\\u{34f}\\u{2800}"):
                self.assertIn(part, text)
            self.assertEqual(self.js(f"return {article}.getAttribute('role')"), "group")
            self.assertTrue(self.js(f"return document.activeElement === {article}"), "no button has the focus")
            self.press("\ue007")  # Enter
            time.sleep(0.3)
            self.assertEqual(server.calls(), 0, "a key alone runs nothing")
            # By keyboard: the arguments, then the first button.
            for key in ("\ue004", "\ue004", "\ue007"):
                self.press(key)
            wait_until(lambda: self.answers() == ["It said 5"])
            asked = self.js("return window.asked")
            self.assertIn("real__add", [tool["function"]["name"] for tool in asked[0]["tools"]])
            call, result = asked[1]["messages"][-2:]
            self.assertEqual(result, {"role": "tool", "content": "5", "tool_call_id": call["tool_calls"][0]["id"]})
            wait_until(lambda: self.js("return document.activeElement.id") == "message")

            self.say("Again")
            self.choose("Refuse")
            wait_until(lambda: self.answers()[-1:] == ["It said The user refused this call."])
            self.say("Again")
            self.choose("Run always in this chat")
            wait_until(lambda: self.answers()[-1:] == ["It said 5"] and len(self.answers()) == 3)
            self.say("Again")
            wait_until(lambda: len(self.answers()) == 4 and self.answers()[-1] == "It said 5")
            self.assertEqual(server.calls(), 3)

            self.js("document.querySelector('.again button').click()")  # Regenerate
            wait_until(lambda: server.calls() == 4)
            wait_until(lambda: len(self.answers()) == 4 and self.answers()[-1] == "It said 5")
            self.browser.send("POST", "/refresh")
            self.assertEqual(len(self.answers()), 4)
            self.assertEqual(self.js("return document.querySelectorAll('article[data-role=tool]').length"), 4)
            self.say("Again")
            wait_until(self.buttons)  # consent ends with the page
            self.js("document.getElementById('stop').click()")
            wait_until(lambda: not self.buttons())
            self.assertEqual(server.calls(), 4)

    def test_a_page_without_the_token_offers_none(self):
        with ToolServer(self.stdio, self.folder) as server:
            server.tools()
            self.open(f"http://127.0.0.1:{server.port}/")
            self.say("Add")
            wait_until(lambda: self.js("return window.asked.length") > 0)
            self.assertNotIn("tools", self.js("return window.asked[0]"))
            wait_until(lambda: self.answers()[-1:] == ["It said There is no such tool."])

    def test_a_page_with_the_token_of_an_earlier_server_has_none(self):
        plain = ["-m", str(ARGUMENTS.model), "--backend", "cpu", "-t", "1", "-c", "512"]
        for start in (
            lambda: ToolServer(self.stdio, self.folder),
            lambda: Server(str(ARGUMENTS.program), plain, self.folder),
        ):
            with start() as server:
                self.open(f"http://127.0.0.1:{server.port}/#tools={'0' * 48}")
                self.say("Add")
                wait_until(lambda: self.answers()[-1:] == ["It said There is no such tool."])
                self.assertNotIn("tools", self.js("return window.asked[0]"))
                notice = self.js("return document.getElementById('notice').textContent")
                self.assertIn("does not take the token", notice)
                self.assertIsNone(self.js("return sessionStorage.getItem('tools')"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("program", "model", "environments", "browser"):
        parser.add_argument(f"--{option}", required=True, type=lambda text: Path(text).resolve())
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=["tools_test.py", *rest])
