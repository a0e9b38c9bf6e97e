#!/usr/bin/env python3
"""compose_test.py --source FOLDER --compose PROGRAM --image NAME WORK_DIR

compose.yaml, run by podman-compose as it stands, on images and settings that check.sh has made: its environment says
where. A Hub on loopback has a tiny model, which the image downloads into the volume. The front end of others is not to
be had without a registry: in its place the service `chat` is curl of the image NAME, with the environment that
compose.yaml gives the front end.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

KEY = "sk-compose-test"


def overrides(image, model):
    """What replaces the front end: a question by curl, asked again until the server listens."""
    question = {"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "Who is the prince?"}]}
    ask = (
        "exec curl -fsS --retry 120 --retry-delay 1 --retry-all-errors $$OPENAI_API_BASE_URL/chat/completions"
        f""" -H "Authorization: Bearer $$OPENAI_API_KEY" -d '{json.dumps(question)}'"""
    )
    chat = {"image": image, "entrypoint": ["sh", "-c"], "command": [ask], "restart": "no"}
    return {"services": {"chat": chat}}


class Project:
    """compose.yaml in a folder of its own, with the key where docs/containers.md puts it; a context."""

    def __init__(self, arguments, model):
        self.folder, self.program = arguments.work / "compose", arguments.compose
        self.folder.mkdir(exist_ok=True)
        (self.folder / "compose.yaml").write_bytes((arguments.source / "compose.yaml").read_bytes())
        (self.folder / "override.yaml").write_text(json.dumps(overrides(arguments.image, model)))
        (self.folder / ".env").write_text(f"RULLAMA_API_KEY={KEY}\nRULLAMA_MODEL={model}\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run("down", "--volumes", "--timeout", "5")

    def run(self, *words):
        """What a command of podman-compose writes to its standard output."""
        command = [self.program, "-p", "rullama-check", "-f", "compose.yaml", "-f", "override.yaml", *words]
        return checked(command, cwd=self.folder).stdout


def checked(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def podman(*words):
    return checked(["podman", *words]).stdout.strip()


def download(hub, repo, image):
    """Puts the model into the volume of the project, as docs/containers.md does: with the image's own `pull`."""
    volume = ["--volume", "rullama-check_models:/models"]
    return podman("run", "--rm", "--network", "host", "--env", f"HF_ENDPOINT={hub.url}", *volume, image, "pull", "-hf", repo)


def wait_for_health(container):
    """The image's own health check, which a machine with systemd would repeat."""
    deadline = time.monotonic() + 60
    while subprocess.run(["podman", "healthcheck", "run", container], capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline:
            sys.exit(f"{container} is not healthy:\n{podman('logs', container)}")
        time.sleep(0.5)


def status_of(path, key):
    request = urllib.request.Request(f"http://127.0.0.1:11435{path}", headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def expect(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("--source", "--compose", "work"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--image")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.source / "tests" / "downloads"))
    from fake_hub import REPO, Hub

    with Hub((arguments.source / "tests/data/tiny-e2b-Q4_K_M.gguf").read_bytes()) as hub, Project(arguments, REPO) as project:
        print("downloaded:", download(hub, REPO, arguments.image))
        project.run("up", "-d")
        server, chat = (f"rullama-check_{service}_1" for service in ("rullama", "chat"))
        wait_for_health(server)
        expect(status_of("/v1/models", KEY), 200, "the published port with the key")
        expect(status_of("/v1/models", "another"), 401, "the published port with another key")
        expect(podman("wait", chat), "0", f"the front end's curl, {podman('logs', chat)!r}")
        answer = json.loads(podman("logs", chat))
        expect(answer["choices"][0]["message"]["role"], "assistant", "what the front end is answered")
        print("answered:", answer["choices"][0]["message"]["content"])
        facts = json.loads(podman("inspect", server))[0]
        expect(facts["HostConfig"]["ReadonlyRootfs"], True, "read_only")
        expect(facts["EffectiveCaps"] or [], [], "the server's capabilities")


if __name__ == "__main__":
    main()
