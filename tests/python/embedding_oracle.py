"""EmbeddingGemma in float64, by its published formulas and NumPy alone. For files in F32."""

import struct

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32 = 0


class _Reader:
    def __init__(self, data):
        self._data, self._at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self._data, self._at)
        self._at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def text(self):
        size = self.take("Q")
        self._at += size
        return self._data[self._at - size : self._at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.take(_SCALARS[kind])
        inner, count = self.take("I"), self.take("Q")
        return [self.value(inner) for _ in range(count)]

    def place(self):
        return self._at


def _read(path):
    """Metadata and float64 tensors of a GGUF file."""
    data = path.read_bytes()
    reader = _Reader(data)
    _, _, tensor_count, key_count = reader.take("IIQQ")
    metadata = {}
    for _ in range(key_count):
        key = reader.text()
        metadata[key] = reader.value(reader.take("I"))
    places = {}
    for _ in range(tensor_count):
        name = reader.text()
        dims = [reader.take("Q") for _ in range(reader.take("I"))]
        kind, offset = reader.take("IQ")
        assert kind == _F32, name
        places[name] = (dims[::-1], offset)
    begin = -(-reader.place() // 32) * 32
    tensors = {
        name: np.frombuffer(data, "<f4", int(np.prod(dims)), begin + offset).reshape(dims).astype(np.float64)
        for name, (dims, offset) in places.items()
    }
    return metadata, tensors


def _rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def _gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x * x * x)))


def _rotate(x, base):
    """x [rows, heads, dim] by its row, in halves."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, low * sin + high * cos], -1)


class Oracle:
    def __init__(self, path):
        metadata, self._tensors = _read(path)
        self._hparams = {key.removeprefix("gemma-embedding."): value for key, value in metadata.items()}

    def embed(self, ids):
        tensors = self._tensors
        h = tensors["token_embd.weight"][ids] * np.sqrt(tensors["token_embd.weight"].shape[1])
        for layer in range(self._hparams["block_count"]):
            h = self._layer(layer, h)
        mean = _rms(h, tensors["output_norm.weight"]).mean(0)
        vector = tensors["dense_3.weight"] @ (tensors["dense_2.weight"] @ mean)
        return vector / np.linalg.norm(vector)

    def _layer(self, layer, h):
        def weight(name):
            return self._tensors[f"blk.{layer}.{name}.weight"]

        is_full = (layer + 1) % 6 == 0
        base = 1e6 if is_full else 1e4
        dim = self._hparams["attention.key_length"]
        x = _rms(h, weight("attn_norm"))

        def heads(name):
            return (x @ weight(name).T).reshape(len(x), -1, dim)

        q = _rotate(_rms(heads("attn_q"), weight("attn_q_norm")), base)
        k = _rotate(_rms(heads("attn_k"), weight("attn_k_norm")), base)[:, 0]
        scores = q.transpose(1, 0, 2) @ k.T / np.sqrt(dim)  # [heads, queries, keys]
        if not is_full:
            rows = np.arange(len(h))
            radius = self._hparams["attention.sliding_window"] // 2
            scores = np.where(abs(rows[:, None] - rows) <= radius, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mix = (weights @ heads("attn_v")[:, 0]).transpose(1, 0, 2).reshape(len(h), -1)
        h = h + _rms(mix @ weight("attn_output").T, weight("post_attention_norm"))
        x = _rms(h, weight("ffn_norm"))
        inner = _gelu(x @ weight("ffn_gate").T) * (x @ weight("ffn_up").T)
        return h + _rms(inner @ weight("ffn_down").T, weight("post_ffw_norm"))
