#!/usr/bin/env python3
"""Writes what SGLang's own classes make of an answer, for tests/unit/launch/serve/formats_test.cc.

    pip install pydantic msgspec typing_extensions
    record_served_answers.py SGLANG_WHEEL_FOLDER > tests/unit/launch/serve/recorded_answers.json

SGLANG_WHEEL_FOLDER is an unpacked wheel of sglang 0.5.12. Only the classes of the protocol are executed, so that
neither PyTorch nor a GPU is needed.
"""
import json
import re
import sys
from pathlib import Path

import msgspec

CLASSES = """PromptTokensDetails UsageInfo CachedTokensDetails SglExt ErrorResponse LogProbs TopLogprob
ChatCompletionTokenLogprob ChoiceLogprobs CompletionResponseChoice CompletionResponse CompletionResponseStreamChoice
CompletionStreamResponse FunctionResponse ToolCall ChatMessage ChatCompletionResponseChoice ChatCompletionResponse
DeltaMessage ChatCompletionResponseStreamChoice ChatCompletionStreamResponse ModelCard ModelList""".split()


def protocol(openai):
    source = (openai / "protocol.py").read_text()
    names = {}
    exec("import time, uuid\nfrom typing import *\nfrom typing_extensions import *\nfrom pydantic import *", names)
    for name in CLASSES:
        found = re.search(rf"^class {name}\(.*?(?=^class |^def |^[A-Za-z_]+ ?[:=] )", source, re.S | re.M)
        exec(found.group(0), names)
    return names


def fast_sse(openai):
    source = (openai / "serving_chat.py").read_text()
    part = re.search(r"^class _StreamDelta.*?(?=^if TYPE_CHECKING)", source, re.S | re.M).group(0)
    names = {"msgspec": msgspec, "_SSE_DATA_B": b"data: ", "_SSE_NL_B": b"\n\n"}
    exec("from typing import *\n" + part, names)
    return names["_fast_sse_content"]


def main():
    openai = Path(sys.argv[1]) / "sglang/srt/entrypoints/openai"
    of = protocol(openai)
    sse = fast_sse(openai)

    def usage(prompt, completion, cached=0):
        details = of["PromptTokensDetails"](cached_tokens=cached) if cached else None
        return of["UsageInfo"](prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion,
                               prompt_tokens_details=details, reasoning_tokens=0)

    def chunk(choices, **more):
        return of["CompletionStreamResponse"](id="abc", created=1700000000, choices=choices, model="m", **more)

    def piece(**fields):
        return of["CompletionResponseStreamChoice"](logprobs=None, **fields)

    last = chunk([piece(index=0, text="", finish_reason="stop", matched_stop='x"')])
    last.usage = usage(3, 2)
    shared = {"id": "abc", "created": 1700000000, "model": "m", "metadata": {"weight_version": "default"}}
    chat = {"chunk_id": "abc", "created": 1700000000, "model": "m", "index": 0}
    answers = {
        "completion_piece": chunk([piece(index=1, text=' say "é"', finish_reason=None)]).model_dump_json(),
        "completion_last": last.model_dump_json(),
        "completion_usage_cached": chunk([], usage=usage(3, 2, 2)).model_dump_json(exclude_none=True),
        "completion_usage": chunk([], usage=usage(3, 2)).model_dump_json(exclude_none=True),
        "completion": of["CompletionResponse"](
            choices=[of["CompletionResponseChoice"](index=0, text=" a", finish_reason="length")],
            usage=usage(3, 2), **shared).model_dump_json(),
        "chat": of["ChatCompletionResponse"](
            choices=[of["ChatCompletionResponseChoice"](
                index=0, message=of["ChatMessage"](role="assistant", content=" a"), finish_reason="stop",
                matched_stop=7)],
            usage=usage(3, 2, 1), **shared).model_dump_json(),
        "chat_usage": of["ChatCompletionStreamResponse"](
            id="abc", created=1700000000, choices=[], model="m", usage=usage(3, 2)).model_dump_json(),
        "chat_role": sse(role="assistant", content="", **chat),
        "chat_piece": sse(content=' say "é"', **chat),
        "chat_piece_usage": sse(content=" a", usage=usage(3, 1).model_dump(), **chat),
        "chat_length": sse(finish_reason="length", **chat),
        "chat_stop": sse(finish_reason="stop", matched_stop="x", **chat),
        "error": of["ErrorResponse"](message="no", type="BadRequestError", code=400).model_dump_json(),
        "models": of["ModelList"](data=[of["ModelCard"](
            id="m", root="m", max_model_len=8192, created=1700000000)]).model_dump_json(),
    }
    print(json.dumps(answers, indent=1, ensure_ascii=False))


main()
