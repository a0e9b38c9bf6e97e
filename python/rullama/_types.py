"""Value types: what an answer consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ._media import File
from ._sampling import SamplingOptions

EventKind: TypeAlias = Literal["progress", "text", "thinking", "tool_call", "draft"]
StopReason: TypeAlias = Literal["eog", "length", "context", "cancelled", "stop"]

_EVENT_KINDS: tuple[EventKind, ...] = ("progress", "text", "thinking", "tool_call", "draft")
_STOP_REASONS: tuple[StopReason, ...] = ("eog", "length", "context", "cancelled", "stop")


@dataclass(frozen=True)
class ToolCall:
    """A function that the model wants called."""

    name: str
    arguments: str  #: a JSON object


@dataclass(frozen=True)
class Event:
    """A part of an answer, in the order in which parts are written.

    ``progress``: ``done`` of ``total`` prompt tokens have been read. ``text``: ``text`` of the
    answer. ``thinking``: ``text`` of a thought. ``tool_call``: ``call``. ``draft``, of a model that
    denoises: step ``done`` of at most ``total``, and ``text`` as it stands.
    """

    kind: EventKind
    text: str = ""
    call: ToolCall | None = None
    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class TokenLogprob:
    """The natural logarithm of a token's probability, before penalties and temperature."""

    token: int
    logprob: float


@dataclass(frozen=True)
class LogprobStep:
    """Of one token: the drawn one and the best ones, descending."""

    drawn: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True)
class Completion:
    """A whole answer, or what there is of one that was cancelled. Times are in seconds."""

    text: str
    thoughts: str
    tool_calls: tuple[ToolCall, ...]
    ids: tuple[int, ...]  #: drawn tokens, without the end token
    logprobs: tuple[LogprobStep, ...]  #: one for each of ``ids``, if asked for
    reason: StopReason
    seed: int  #: with it the same request has the same answer
    prompt_tokens: int
    cached_tokens: int  #: of the prompt: found in a slot and not read again
    drafted_tokens: int  #: guessed in advance (docs/drafts.md)
    accepted_tokens: int  #: of these, in the answer
    queue_seconds: float  #: until a slot was free
    prompt_seconds: float  #: from then on until the first token was drawn
    generate_seconds: float


@dataclass(frozen=True)
class ModelInfo:
    """What a model is and where it runs. Lengths are in tokens."""

    name: str
    architecture: str
    backend: str
    device: str
    layers: int
    width: int  #: of the residual stream
    vocabulary: int
    context_length: int  #: the longest the model was trained for
    capacity: int  #: tokens per slot
    slots: int  #: requests that run at once
    canvas_length: int  #: tokens denoised together; 0: the model writes token by token
    embedding_width: int  #: numbers of an embedding; 0: the model makes none
    encodes: bool  #: it makes embeddings and writes no text
    takes_pictures: bool
    takes_sound: bool


class RequestOptions(SamplingOptions, total=False):
    """Options of one answer, to which the numbers of the sampler belong. Options that are left out
    are as configured, else as the model file recommends; the ranges are those of
    docs/configuration.md, block ``sampler``."""

    max_tokens: int  #: 0 only reads the prompt; negative: until the end or a full context
    stop: Sequence[str]  #: texts before which the answer ends
    logit_bias: Mapping[int, float]  #: added to the logit of a token; -infinity bans it
    seed: int  #: 0 to 2**63 - 1; without one a seed is drawn
    top_logprobs: int  #: log-probabilities of this many best tokens, at most 20
    #: the text of the answer is valid under it (docs/constrained-output.md); as text or as a value
    json_schema: str | bool | Mapping[str, Any]
    tool_choice: Literal["auto", "none", "required"]  #: may, must not or must be called
    allowed_tools: Sequence[str]  #: names of the tools that may be called; by default all
    parallel_tool_calls: bool  #: several calls may follow one another, as by default
    #: pictures: names of files, or the bytes of files (JPEG, PNG, WebP, GIF, BMP). They fill the parts
    #: {"type": "image"} of the messages, which are otherwise put before the last message's
    #: text, or the markers <|image|> of a prompt
    images: File | Sequence[File]
    audio: File | Sequence[File]  #: sounds (WAV, FLAC, Ogg, MP3), in the same way: <|audio|>
    image_tokens: int  #: most soft tokens of each picture, if there are any: 70, 140, 280, 560 or 1120
    reuse_prefix: bool  #: use what slots hold of a prompt with the same beginning
    slot: int  #: the slot to run in, which is waited for; by default any
    drafts: bool  #: check guessed tokens (docs/drafts.md), if the model is opened with drafts; on by default
    max_draft: int  #: most tokens of a guess, at most drafts.max
    min_draft_probability: float  #: a guess of the model's own drafter ends before a less likely token


def event_of(native: tuple[int, str, str, str, int, int]) -> Event:
    kind, text, name, arguments, done, total = native
    call = ToolCall(name, arguments) if _EVENT_KINDS[kind] == "tool_call" else None
    return Event(_EVENT_KINDS[kind], text, call, done, total)


def completion_of(native: dict[str, Any]) -> Completion:
    values = dict(native)
    values["reason"] = _STOP_REASONS[values["reason"]]
    values["ids"] = tuple(values["ids"])
    values["tool_calls"] = tuple(ToolCall(*call) for call in values["tool_calls"])
    values["logprobs"] = tuple(
        LogprobStep(TokenLogprob(token, logprob), tuple(TokenLogprob(*one) for one in top))
        for token, logprob, top in values["logprobs"]
    )
    return Completion(**values)
