"""The package on a tiny trained model: answers, arrays, errors."""

import gc
import json
import math
import tomllib

import numpy as np
import pytest

import rullama
from conftest import DATA, E2B, SOURCE

PROMPT = "The prince"


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    assert rullama.__version__ == project["version"]


def test_the_same_seed_has_the_same_answer(model):
    one = model.generate(PROMPT, max_tokens=12, temperature=1.0, seed=7)
    assert one.seed == 7 and len(one.ids) == 12 and one.reason == "length"
    assert model.generate(PROMPT, max_tokens=12, temperature=1.0, seed=7).ids == one.ids
    others = {model.generate(PROMPT, max_tokens=12, temperature=1.5, seed=s).ids for s in range(4)}
    assert len(others) > 1


def test_drafts_are_counted_and_leave_the_answer_as_it_is():
    options = {"max_tokens": 24, "temperature": 0, "logit_bias": {300: 100.0}}
    with rullama.Model(E2B, backend="cpu", config={"drafts.lookup": True}) as drafting:
        found = drafting.generate(PROMPT, **options)
        plain = drafting.generate(PROMPT, drafts=False, **options)
    assert found.ids == plain.ids
    assert 0 < found.accepted_tokens <= found.drafted_tokens
    assert plain.drafted_tokens == 0


def test_events_joined_are_the_text(model):
    stream = model.stream(PROMPT, max_tokens=12, temperature=0)
    events = list(stream)
    assert {e.kind for e in events} == {"progress", "text"}
    text = "".join(e.text for e in events if e.kind == "text")
    assert text == stream.completion.text == model.generate(PROMPT, max_tokens=12, temperature=0).text
    assert text


def test_a_prompt_may_be_token_ids(model):
    ids = model.tokenize(PROMPT, add_bos=True)
    by_ids = model.generate(ids, max_tokens=8, temperature=0)
    assert by_ids.ids == model.generate(PROMPT, max_tokens=8, temperature=0).ids
    assert model.detokenize(ids) == PROMPT


def test_a_chat_reads_the_rendered_conversation(model):
    messages = [{"role": "user", "content": "Who is Anna?"}]
    answer = model.chat(messages, max_tokens=8, temperature=0)
    assert answer.prompt_tokens == len(model.chat_tokens(messages))
    with model.chat(messages, stream=True, max_tokens=8, temperature=0) as stream:
        assert stream.wait().ids == answer.ids
    tools = [
        {
            "type": "function",
            "function": {"name": "now", "parameters": {"type": "object", "properties": {}}},
        }
    ]
    assert len(model.chat_tokens(messages, tools=tools)) > len(model.chat_tokens(messages))
    assert model.chat(messages, tools=tools, thinking=True, max_tokens=1).prompt_tokens == len(
        model.chat_tokens(messages, tools=tools, thinking=True)
    )


def test_log_probabilities_are_those_of_the_logits(model):
    answer = model.generate(PROMPT, max_tokens=3, temperature=0, top_logprobs=2)
    assert len(answer.logprobs) == 3
    ids = model.tokenize(PROMPT, add_bos=True)
    last = model.logits(ids)[-1].astype(np.float64)
    expected = last - last.max() - math.log(np.exp(last - last.max()).sum())
    step = answer.logprobs[0]
    assert step.drawn.token == expected.argmax()
    assert step.drawn.logprob == pytest.approx(expected.max(), abs=1e-3)
    assert [one.token for one in step.top] == list(np.argsort(-expected)[:2])


def test_options_reach_the_sampler(model):
    first = model.generate(PROMPT, max_tokens=1, temperature=0).ids[0]
    banned = model.generate(PROMPT, max_tokens=1, temperature=0, logit_bias={first: -math.inf})
    assert banned.ids[0] != first
    whole = model.generate(PROMPT, max_tokens=16, temperature=0).text
    stop = whole[4:7]
    stopped = model.generate(PROMPT, max_tokens=16, temperature=0, stop=[stop])
    assert stopped.reason == "stop" and stopped.text == whole[: whole.index(stop)]


def test_logits_are_an_array_that_owns_its_numbers(model):
    ids = model.tokenize("It was in July, 1805, and the speaker", add_bos=True)
    logits = model.logits(ids)
    assert logits.shape == (len(ids), model.info.vocabulary)
    assert logits.dtype == np.float32 and logits.flags.c_contiguous and logits.base is not None
    row = logits[3]
    copy = row.copy()
    del logits
    gc.collect()
    assert np.array_equal(row, copy)
    parts = dict(model.logits_parts(ids))
    assert sum(len(rows) for rows in parts.values()) == len(ids)
    joined = np.concatenate([parts[first] for first in sorted(parts)])
    assert np.array_equal(joined[3], copy)


def test_closing_an_iterator_of_logits_frees_the_slot(model):
    ids = model.tokenize("Well, Prince " * 60, add_bos=True)[:400]
    for _ in range(4):
        parts = model.logits_parts(ids)
        next(parts)
        parts.close()
    assert model.generate(PROMPT, max_tokens=1).ids


def test_perplexity_is_that_of_the_logits(model):
    ids = model.tokenize("It was in July, 1805", parse_special=False, add_bos=True)
    logits = model.logits(ids).astype(np.float64)
    total = 0.0
    for row, target in zip(logits, ids[1:]):
        total += row.max() + math.log(np.exp(row - row.max()).sum()) - row[target]
    assert model.negative_log_likelihood(ids) == pytest.approx(total, rel=1e-5)
    assert model.perplexity("It was in July, 1805") == pytest.approx(
        math.exp(total / (len(ids) - 1)), rel=1e-5
    )
    with pytest.raises(ValueError):
        model.negative_log_likelihood(ids[:1])


def test_embeddings_have_length_one(model):
    one = model.embed("The prince")
    assert one.shape == (model.info.width,) and one.dtype == np.float32
    both = model.embed(["The prince", "It was in July"])
    assert both.shape == (2, model.info.width)
    assert np.array_equal(both[0], one) and not np.array_equal(both[1], one)
    assert np.linalg.norm(both, axis=1) == pytest.approx([1, 1], abs=1e-5)
    assert model.embed([]).shape == (0, model.info.width)


def test_a_slot_goes_through_a_file(tmp_path):
    config = {"context.slots": 2, "context.prefill_chunk": 8}
    path = tmp_path / "slot"
    prompt = "Well, Prince, so Genoa and Lucca are now just family estates"
    with rullama.Model(E2B, backend="cpu", config=config) as model:
        with pytest.raises(rullama.Error) as error:
            model.save_slot(1, path)
        assert error.value.id == "slot.empty"
        first = model.generate(prompt, max_tokens=1, temperature=0, slot=1)
        assert model.save_slot(1, path) >= first.prompt_tokens
        assert model.erase_slot(1) >= first.prompt_tokens
        assert model.erase_slot(1) == 0
    with rullama.Model(E2B, backend="cpu", config=config) as model:
        assert model.restore_slot(0, path) >= first.prompt_tokens
        again = model.generate(prompt, max_tokens=1, temperature=0)
        assert again.cached_tokens >= 8 and again.ids == first.ids
        with pytest.raises(rullama.Error):
            model.restore_slot(2, path)
        with pytest.raises(rullama.Error) as error:
            model.restore_slot(0, tmp_path / "none")
        assert error.value.id == "slot.not_found"


def test_a_difference_is_zero_for_the_same_and_not_for_another(model):
    same = rullama.diff(model, model, "The prince said")
    assert same.max_abs == 0 and same.max_kl == 0 and same.top1 == 1
    assert same.first_different is None and same.tokens > 1
    with rullama.Model(E2B, "reference", context=64) as reference:
        near = rullama.diff(model, reference, "The prince said")
    assert 0 < near.max_abs < 1 and 0 < near.mean_kl <= near.max_kl < 0.1
    moe = DATA / "tiny-moe-Q4_K_M.gguf"
    with rullama.Model(moe, "cpu", context=64) as other:
        if other.info.vocabulary == model.info.vocabulary:
            assert rullama.diff(other, model, "The prince said").max_kl > near.max_kl
        else:
            with pytest.raises(ValueError):
                rullama.diff(other, model, "The prince said")


def test_information_and_configuration():
    config = {"context.slots": 3, "context.capacity": 96}
    with rullama.Model(str(E2B), "cpu", config=config) as opened:
        info = opened.info
    assert (info.slots, info.capacity, info.backend) == (3, 96, "cpu")
    assert info.architecture == "gemma4" and info.canvas_length == 0


def test_lists_in_the_configuration():
    config = {"generation.stop": ["e", "never, written"], "plugins.paths": [], "backend.options": {"threads": 1}}
    options = {"max_tokens": 40, "temperature": 0}
    with rullama.Model(E2B, "cpu", context=128, config=config) as opened:
        answer = opened.generate(PROMPT, **options)
    assert answer.reason == "stop" and answer.text and "e" not in answer.text
    with pytest.raises(rullama.UsageError) as wrong:
        rullama.Model(E2B, "cpu", config={"generation.stop": [["a"]]})
    assert wrong.value.id == "config.type" and "found a list" in wrong.value.message


def test_a_configuration_file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("context:\n  capacity: 80\n")
    with rullama.Model(E2B, "cpu", config=path) as opened:
        assert opened.info.capacity == 80


def test_errors_have_class_id_and_hint(model, tmp_path):
    with pytest.raises(rullama.FileError) as missing:
        rullama.Model(tmp_path / "none.gguf", "cpu")
    assert missing.value.id == "io.open" and missing.value.exit_code == 6
    assert missing.value.kind == "io" and "[io.open]" in str(missing.value)
    (tmp_path / "text.gguf").write_text("no model at all, but long enough to be read")
    with pytest.raises(rullama.ModelFileError) as bad:
        rullama.Model(tmp_path / "text.gguf", "cpu")
    assert bad.value.id == "gguf.bad_magic"
    with pytest.raises(rullama.UsageError):
        rullama.Model(E2B, "cpu", config={"context.nothing": 1})
    with pytest.raises(rullama.BackendError):
        rullama.Model(E2B, "nosuchbackend")
    with pytest.raises(rullama.Error) as long:
        model.generate(list(range(5, 600)), max_tokens=1)
    assert long.value.id == "context.overflow"
    with pytest.raises(rullama.Error) as outside:
        model.logits([model.info.vocabulary])
    assert outside.value.id == "tokenizer.id"
    with pytest.raises(rullama.Error) as too_long:
        model.logits([5] * 600)
    assert too_long.value.id == "context.overflow"
    with pytest.raises(rullama.UsageError):
        model.generate(PROMPT, temperature=-1)


def test_wrong_types_are_type_errors(model):
    with pytest.raises(TypeError, match="temperature"):
        model.generate(PROMPT, temperature="hot")
    with pytest.raises(TypeError, match="no option 'heat'.*; there are allowed_tools, audio, "):
        model.generate(PROMPT, heat=1)
    for adapters in ("adapter", [("adapter",)], [("adapter", "0.5")]):
        with pytest.raises(TypeError):
            rullama.Model("no.gguf", "cpu", adapters=adapters)
    with pytest.raises(TypeError, match="did you mean 'top_logprobs'"):
        model.generate(PROMPT, logprobs=3)
    for bias in (5, {2**40: 1.0}, {"a": 1.0}, {5: "much"}):
        with pytest.raises(TypeError, match="logit_bias"):
            model.generate(PROMPT, logit_bias=bias)
    for call in (
        lambda: model.generate(["x"]),
        lambda: model.generate([1.5]),
        lambda: model.generate(b"hello"),
        lambda: model.generate(PROMPT, image_tokens="many"),
        lambda: model.logits("hello"),
        lambda: model.detokenize("hello"),
        lambda: model.chat("hello"),
        lambda: model.chat({"role": "user", "content": "x"}),
        lambda: model.chat(["hello"]),
        lambda: model.chat([{"role": "user", "content": "x"}], tools="hello"),
        lambda: model.chat_tokens("hello"),
    ):
        with pytest.raises(TypeError):
            call()
    for name in ("seed", "top_logprobs"):
        for value in (-1, np.int64(-1)):
            with pytest.raises(ValueError, match=f"'{name}' is -1, expected 0 or more"):
                model.generate(PROMPT, **{name: value})


def test_the_page_names_the_options_of_an_answer():
    page = (SOURCE / "docs/python.md").read_text()
    sampling = rullama._sampling.SamplingOptions.__annotations__
    for name in set(rullama.RequestOptions.__annotations__) - set(sampling):
        assert f"`{name}`" in page, name


def test_the_hint_is_after_the_last_semicolon_outside_quotes():
    make = rullama._errors.make_error
    error = make(6, "io.open", "cannot open 'a; b'; no such file; check the path")
    assert (error.message, error.hint) == ("cannot open 'a; b'; no such file", "check the path")
    assert str(error) == "cannot open 'a; b'; no such file; check the path [io.open]"
    assert make(6, "io.open", "cannot open 'a; b'").hint == ""
    error = make(2, "x", "the file's end; a plugin's name; try 'c; d'")
    assert error.hint == "try 'c; d'"
    assert isinstance(make(5, "memory.host", "no"), MemoryError)


def test_a_closed_model_refuses_and_its_answers_end():
    opened = rullama.Model(E2B, "cpu", context=512)
    stream = opened.stream(PROMPT, temperature=0, max_tokens=4)
    opened.close()
    opened.close()
    assert len(stream.wait().ids) == 4
    with pytest.raises(rullama.UsageError, match="closed"):
        opened.generate(PROMPT)


def test_messages_are_json(model):
    with pytest.raises(rullama.UsageError):
        model.chat([{"role": "nobody", "content": json.dumps({})}], max_tokens=1)
