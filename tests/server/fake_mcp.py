"""fake_mcp.py MODE [FILE]: an MCP server over standard streams that behaves as MODE says, for mcp_test.cc."""

import json
import os
import signal
import subprocess
import sys
import time

MODE = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "format": "uri"}}, "propertyNames": {}}
TOOLS = [
    {"name": "echo", "description": "Gives back its text", "inputSchema": SCHEMA},
    {"name": "bad", "inputSchema": {"type": "array"}},
    {"name": "slow", "inputSchema": {"type": "object"}},
    {"name": "grow", "inputSchema": {"type": "object"}},
    {"name": "die", "inputSchema": {"type": "object"}},
    {"name": "asked", "inputSchema": {"type": "object"}},
    {"name": "cancelled", "inputSchema": {"type": "object"}},
    {"name": "refuse", "inputSchema": {"type": "object"}},
]
cancelled = []
answers = []


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def text(content, **more):
    return {"content": [{"type": "text", "text": content}], **more}


def call(number, name, arguments):
    """The result of a tool, or nothing if there is none."""
    if name == "echo":
        return text(arguments["text"])
    if name == "grow":
        TOOLS.append({"name": "new", "inputSchema": {"type": "object"}})
        send({"method": "notifications/tools/list_changed"})
        return {"content": [{"type": "image", "mimeType": "image/png", "data": "AA=="}], "structuredContent": {"a": 1}}
    if name == "die":
        print("it dies now", file=sys.stderr)
        sys.exit(3)
    if name == "asked":  # what the client has answered to requests of the server
        return text(json.dumps(answers))
    if name == "cancelled":
        return text(json.dumps(cancelled))
    if name == "slow" and "unread" in arguments:
        send({"id": None, "error": {"code": -32700, "message": "cannot be read"}})
    if name == "refuse":
        send({"id": number, "error": {"code": -32602, "message": "no such thing"}})
    return None


def take(message):
    method, number = message.get("method"), message.get("id")
    if method is None:
        answers.append(message.get("result", message.get("error", {}).get("code")))
    elif method == "initialize":
        version = "1999-01-01" if MODE == "version" else message["params"]["protocolVersion"]
        send({"id": number, "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {}}})
    elif method == "notifications/initialized":
        print("a greeting that is no message", flush=True)
        send({"id": "a", "method": "ping"})
        send({"id": 7, "method": "sampling/createMessage", "params": {}})
    elif method == "notifications/cancelled":
        cancelled.append(message["params"]["requestId"])
    elif method == "tools/list":
        start = int(message["params"].get("cursor", 0))
        if MODE == "endless":
            send({"id": number, "result": {"tools": [], "nextCursor": str(start + 1)}})
        else:
            more = {"nextCursor": str(start + 3)} if start + 3 < len(TOOLS) else {}
            send({"id": number, "result": {"tools": TOOLS[start : start + 3], **more}})
    elif method == "tools/call":
        result = call(number, message["params"]["name"], message["params"]["arguments"])
        if result is not None:
            send({"id": number, "result": result})


def main():
    if MODE == "garbage":
        while True:
            print("{nothing of the kind]", flush=True)
    if MODE == "huge":
        print("x" * (5 << 20), flush=True)
    if MODE == "silent":
        time.sleep(60)
    if MODE == "stubborn":  # and so is what it has started
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"])
        with open(sys.argv[2], "w", encoding="ascii") as pids:
            pids.write(str(child.pid))
    if MODE == "apart":
        os.setpgid(0, os.getpgid(os.getppid()))
    for line in sys.stdin:
        take(json.loads(line))
    if MODE in ("stubborn", "apart"):
        time.sleep(60)


main()
