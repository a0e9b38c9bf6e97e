"""Pictures and sounds of requests."""

import json

import numpy as np
import pytest

import rullama
from conftest import DATA
from rullama._media import add_media

SHARED = DATA.parents[2] / "shared"
MEDIA = SHARED / "goldens" / "tiny-media"


def test_files_fill_the_places_of_a_request():
    chat = {"messages": '[{"role": "user", "content": "Who?"}]', "images": "a.png", "audio": [b"RIFF"]}
    add_media(chat)
    assert chat["media"] == [(0, "a.png", b"", 0), (1, "", b"RIFF", 0)]
    assert '[{"type": "image"}, {"type": "audio"}, {"type": "text", "text": "Who?"}]' in chat["messages"]
    prompt = {"prompt": "<|audio|> and <|image|>", "images": b"GIF", "audio": "b.wav", "image_tokens": 70}
    add_media(prompt)
    assert prompt["media"] == [(1, "b.wav", b"", 0), (0, "", b"GIF", 70)]
    for wrong in ({"prompt": "no place"}, {"messages": '[{"role": "user", "content": [{"type": "audio"}]}]'}):
        with pytest.raises(ValueError, match="image"):
            add_media({**wrong, "images": "a.png"})


def test_a_model_without_towers_takes_no_pictures(model):
    assert not model.info.takes_pictures
    with pytest.raises(rullama.UsageError) as error:
        model.chat([{"role": "user", "content": "Who?"}], images=b"GIF89a")
    assert error.value.id == "media.unsupported"


if SHARED.exists():

    def test_a_picture_is_seen_and_sound_is_heard():
        towers = {"model.mmproj": SHARED / "models" / "tiny-e2b-mmproj-f16.gguf"}
        with rullama.Model(SHARED / "models" / "tiny-e2b-f16.gguf", "cpu", context=512, config=towers) as model:
            picture = MEDIA / "wide-palette.png"
            options = {"max_tokens": 24, "temperature": 0, "image_tokens": 70}
            question = [{"role": "user", "content": "Who stands at the left of the prince?"}]
            answer = model.chat(question, images=picture, **options)
            assert answer.text.startswith('"Oh, yes, master, I was found worthy.')
            assert model.chat(question, images=[picture.read_bytes()], **options).ids == answer.ids
            heard = model.chat(
                [{"role": "user", "content": "Write down what was said."}],
                audio=MEDIA / "speech-16k-mono.wav",
                **options,
            )
            assert heard.text == '"Think? What about?" asked Prince Andrew with surprise.'

    def test_a_picture_is_embedded_with_its_text():
        family = SHARED / "models" / "family"
        towers = {"model.mmproj": family / "tiny-embeddinggemma2-mmproj-bf16.gguf"}
        golden = json.loads((SHARED / "goldens" / "embeddinggemma2" / "golden.json").read_text())
        [case] = [one for one in golden["cases"] if one["name"] == "image"]
        [name] = [part["media"] for part in case["parts"] if isinstance(part, dict)]
        [medium] = [one for one in golden["media"] if one["name"] == name]
        with rullama.Model(family / "tiny-embeddinggemma2-bf16.gguf", "cpu", config=towers) as model:
            picture = SHARED / "goldens" / "embeddinggemma2" / medium["file"]
            options = {"images": picture, "image_tokens": medium["budget"]}
            vector = model.embed("", **options)
            assert vector.dtype == np.float32 and vector.shape == (model.info.embedding_width,)
            assert np.linalg.norm(vector - case["embedding"]) < 2e-3
            cut = model.embed("", dimensions=64, **options)
            assert cut == pytest.approx(vector[:64] / np.linalg.norm(vector[:64]), abs=1e-6)
            assert not np.array_equal(model.embed("A picture", **options), vector)
            with pytest.raises(TypeError):
                model.embed(["a", "b"], images=picture)
            with pytest.raises(TypeError, match="image_tokens"):
                model.embed("A text", image_tokens=70)
            with pytest.raises(rullama.UsageError):
                model.embed("", task="chat", **options)
