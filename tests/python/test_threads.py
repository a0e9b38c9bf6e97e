"""Several threads, cancellation, Ctrl-C and asyncio."""

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest

import rullama
from conftest import E2B

PROMPTS = ["The prince", "It was in July", "Well, my", "Anna Pavlovna"]


def test_threads_have_the_answers_of_each_alone(model):
    alone = [model.generate(p, max_tokens=12, temperature=0).ids for p in PROMPTS]
    together = [None] * len(PROMPTS)

    def run(i):
        together[i] = model.generate(PROMPTS[i], max_tokens=12, temperature=0).ids

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_other_threads_run_while_one_waits(model):
    ran = []
    over = threading.Event()

    def count():
        while not over.is_set():
            ran.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.monotonic()
    model.generate("The prince", max_tokens=200, temperature=0)
    end = time.monotonic()
    over.set()
    thread.join()
    assert len([t for t in ran if begin < t < end]) >= 5


def test_cancel_from_another_thread_ends_the_answer(model):
    stream = model.stream("The prince", temperature=0)
    next(stream)
    threading.Thread(target=stream.cancel).start()
    assert stream.wait().reason == "cancelled"


def test_leaving_a_stream_frees_its_slot(model):
    for _ in range(4):
        with model.stream("The prince", temperature=0) as stream:
            next(stream)
    model.stream("The prince", temperature=0)  # dropped at once
    assert len(model.generate("The prince", max_tokens=2, temperature=0).ids) == 2


INTERRUPTED = """
import signal, sys, time, rullama
# Ctrl-C is ignored in jobs that a shell runs in the background, and in their children.
signal.signal(signal.SIGINT, signal.default_int_handler)
model = rullama.Model(sys.argv[1], "cpu", context=512, config={"context.slots": 1})
# Another answer holds the only slot and is not read, so the wait for it has no end.
held = model.stream("The prince", temperature=0)
next(held)
print("ready", flush=True)
try:
    %s
except KeyboardInterrupt:
    print("interrupted", flush=True)
    held.close()
    print(len(model.generate("The prince", max_tokens=3, temperature=0).ids), flush=True)
"""


@pytest.mark.parametrize(
    "call",
    [
        'model.generate("It was in July")',
        'next(model.stream("It was in July"))',
        'while True: model.logits(model.tokenize("Well, Prince " * 50)[:300])',
        'while True: model.embed(["It was in July"] * 50)',
    ],
)
def test_ctrl_c_interrupts(call):
    if "while" in call:  # these end by themselves, and need the slot
        text = INTERRUPTED.replace("next(held)", "held.close()") % call
    else:
        # Bounded queues hold up the unread answer before its context is full or not; either way
        # the interrupted call is repeated until the signal comes.
        text = INTERRUPTED % f"while True: {call}"
    process = subprocess.Popen(
        [sys.executable, "-c", text, str(E2B)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.stdout.readline() == "3\n"
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


DAEMON = """
import sys, threading, time, rullama
model = rullama.Model(sys.argv[1], "cpu", context=512)
ids = model.tokenize("Well, Prince " * 50)[:300]
line = {"prompt": "Who is Andrew?", "completion": "A prince."}
begun = threading.Event()
def run():
    while True:
        %s
def call(function, *arguments, **options):
    begun.set()
    function(*arguments, **options)
threading.Thread(target=run, daemon=True).start()
begun.wait()
time.sleep(0.1)
"""


@pytest.mark.parametrize(
    "call",
    [
        'call(lambda: list(model.stream("The prince", logit_bias={1: -100.0, 16: -100.0})))',
        'call(model.generate, "The prince", max_tokens=4)',
        "call(model.logits, ids)",
        "call(lambda: list(model.logits_parts(ids)))",
        'call(model.embed, ["It was in July"] * 50)',
        'rullama.finetune(sys.argv[1], [line], sys.argv[2], "cpu", rank=1, batch_size=1, epochs=10000, '
        'config={"training.steps_per_report": 1}, on_report=lambda report: begun.set())',
    ],
)
def test_the_interpreter_ends_with_a_daemon_thread_in_the_library(call, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", DAEMON % call, str(E2B), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")


FORKED = """
import os, sys, warnings, rullama
warnings.simplefilter("ignore")  # Python 3.12 warns of a fork with threads
model = rullama.Model(sys.argv[1], "cpu", context=512, slots=2)
model.generate("The prince", max_tokens=2)
stream = model.stream("The prince")
next(stream)
parts = model.logits_parts(model.tokenize("The prince"))
next(parts)
child = os.fork()
if child == 0:
    for use in (
        lambda: model.generate("The prince", max_tokens=2),
        lambda: model.embed("The prince"),
        lambda: model.logits(model.tokenize("The prince")),
        lambda: next(stream),
        lambda: next(parts),
        lambda: next(model.logits_parts(model.tokenize("The prince"))),
    ):
        try:
            use()
        except rullama.UsageError as error:
            print(error.id, flush=True)
    stream.close()
    model.close()
    mine = rullama.Model(sys.argv[1], "cpu", context=512)
    print(len(mine.generate("The prince", max_tokens=2, temperature=0).ids), flush=True)
    sys.exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), flush=True)
stream.close()
print(len(model.generate("The prince", max_tokens=2, temperature=0).ids), flush=True)
"""


def test_a_fork_gets_an_error_and_can_open_models_of_its_own():
    run = subprocess.run(
        [sys.executable, "-c", FORKED, str(E2B)], capture_output=True, text=True, timeout=60
    )
    assert run.stdout.split() == ["engine.forked"] * 6 + ["2", "3", "2"], run.stderr
    assert (run.returncode, run.stderr) == (0, "")


FORKED_WHILE_READ = """
import os, sys, threading, time, warnings, rullama
warnings.simplefilter("ignore")
model = rullama.Model(sys.argv[1], "cpu", context=512, slots=1)
# Pauses unread with the only slot, for which the other one waits.
held = model.stream("The prince", logit_bias={1: -100.0, 16: -100.0})
next(held)
waiting = model.stream("The prince", max_tokens=2)
reader = threading.Thread(target=waiting.wait)
reader.start()
time.sleep(0.3)
child = os.fork()
if child == 0:
    for use in (lambda: next(waiting), lambda: waiting.completion):
        try:
            use()
        except rullama.UsageError as error:
            print(error.id, flush=True)
    print(held.completion.prompt_tokens, flush=True)  # nobody was reading it
    os._exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), held.completion.prompt_tokens, flush=True)
held.close()
reader.join()
"""


def test_a_fork_gets_an_error_for_an_answer_that_was_being_read():
    run = subprocess.run(
        [sys.executable, "-c", FORKED_WHILE_READ, str(E2B)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    *errors, tokens, status, same = run.stdout.split()
    assert (errors, status, same) == (["engine.forked"] * 2, "3", tokens), run.stderr
    assert (run.returncode, run.stderr) == (0, "")


# Functions of atexit run in reverse order, so this one runs after that of the library.
AT_EXIT = """
import asyncio, atexit, sys
def at_exit():
    reports = []
    line = {"prompt": "Who is Andrew?", "completion": "A prince."}
    rullama.finetune(sys.argv[1], [line], sys.argv[2], "cpu", rank=1, batch_size=1, iters=2,
                     on_report=reports.append)
    print(reports[-1].step, flush=True)
    with rullama.Model(sys.argv[1], "cpu", context=512) as model:
        print(len(model.generate("The prince", max_tokens=2, temperature=0).ids), flush=True)
        print(sum(len(rows) for rows in model.logits_parts(model.tokenize("The prince"))), flush=True)
        async def main():
            try:
                await model.agenerate("The prince")
            except RuntimeError as error:
                print("while the interpreter ends" in str(error), flush=True)
        asyncio.run(main())
atexit.register(at_exit)
import rullama
"""


def test_functions_of_atexit_may_use_the_library(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(E2B), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    step, ids, rows, refused = run.stdout.split()
    assert (step, ids, refused) == ("2", "2", "True"), run.stderr
    assert int(rows) > 0
    assert (run.returncode, run.stderr) == (0, "")


def test_asyncio_streams_run_together(model):
    alone = [model.generate(p, max_tokens=12, temperature=0) for p in PROMPTS]

    async def one(prompt):
        async with model.astream(prompt, max_tokens=12, temperature=0) as stream:
            text = "".join([e.text async for e in stream if e.kind == "text"])
            return text, stream.completion

    async def main():
        streams = await asyncio.gather(*(one(p) for p in PROMPTS))
        whole = await asyncio.gather(
            *(model.agenerate(p, max_tokens=12, temperature=0) for p in PROMPTS)
        )
        chat = await model.achat([{"role": "user", "content": "Who?"}], max_tokens=2).wait()
        return streams, whole, chat

    streams, whole, chat = asyncio.run(main())
    assert [text for text, _ in streams] == [a.text for a in alone]
    assert [c.ids for _, c in streams] == [a.ids for a in alone] == [c.ids for c in whole]
    assert chat.prompt_tokens > 0


def test_cancelling_a_task_cancels_the_answer(model):
    async def main():
        tasks = [asyncio.create_task(model.agenerate("The prince", temperature=0)) for _ in range(6)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert any(isinstance(r, asyncio.CancelledError) for r in results)
    answers = [t for t in threading.enumerate() if t.name == "rullama answer"]
    for thread in answers:
        thread.join(60)
    assert not any(thread.is_alive() for thread in answers)
    assert len(model.generate("The prince", max_tokens=2, temperature=0).ids) == 2


def test_asyncio_errors(model):
    async def main():
        with pytest.raises(rullama.UsageError):
            await model.agenerate("The prince", temperature=-1)

    asyncio.run(main())
