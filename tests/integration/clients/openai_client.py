"""The OpenAI Python SDK against a server: one JSON object of what it got. Usage: openai_client.py BASE_URL KEY MODEL"""

import asyncio
import json
import sys
import time

import openai

URL, KEY, MODEL = sys.argv[1:]
MESSAGES = [{"role": "system", "content": "You are terse."},
            {"role": "user", "content": [{"type": "text", "text": "How is the weather, friend?"}]}]
client = openai.OpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=60)


def refusal(call):
    try:
        call()
        return None
    except openai.APIStatusError as error:
        return {"kind": type(error).__name__, "status": error.status_code, "message": error.message,
                "body": error.body}


def chat(**more):
    return client.chat.completions.create(model=MODEL, messages=MESSAGES, **more)


def complete(prompt="Once upon a time", **more):
    return client.completions.create(model=MODEL, prompt=prompt, **more)


def streamed(chunks):
    got = {"text": "", "chunks": 0, "finish": [], "usage": None, "roles": []}
    for chunk in chunks:
        got["chunks"] += 1
        if chunk.usage:
            got["usage"] = chunk.usage.model_dump()
        for choice in chunk.choices:
            delta = getattr(choice, "delta", None)
            got["text"] += (delta.content or "") if delta else choice.text
            if delta and delta.role:
                got["roles"].append(delta.role)
            if choice.finish_reason:
                got["finish"].append(choice.finish_reason)
    return got


async def many(count):
    """As many streams at the same time."""
    asynchronous = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=60)

    async def one(number):
        tokens = 0
        stream = await asynchronous.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": f"Number {number}"}], max_tokens=20 + number, stream=True,
            stream_options={"include_usage": True})
        async for chunk in stream:
            if chunk.usage:
                tokens = chunk.usage.completion_tokens
        return tokens

    try:
        return await asyncio.gather(*[one(number) for number in range(count)])
    finally:
        await asynchronous.close()


async def given_up():
    """Leaves in mid-stream."""
    asynchronous = openai.AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
    stream = await asynchronous.completions.create(model=MODEL, prompt="x", max_tokens=4000, stream=True)
    pieces = 0
    async for _ in stream:
        pieces += 1
        if pieces == 5:
            break
    await stream.close()
    await asynchronous.close()
    return pieces


got = {
    "models": [model.id for model in client.models.list()],
    "model": client.models.retrieve(MODEL).id,
    "chat": chat(max_tokens=17).model_dump(),
    "chat_limit": chat(max_completion_tokens=9).model_dump(),
    "chat_n": chat(max_tokens=5, n=3).model_dump(),
    "chat_stream": streamed(chat(max_tokens=17, stream=True, stream_options={"include_usage": True})),
    "chat_stream_plain": streamed(chat(max_tokens=6, stream=True)),
    "completion": complete(max_tokens=12).model_dump(),
    "completion_ids": complete([5, 6, 7, 8], max_tokens=3).model_dump(),
    "completion_batch": complete(["one", "two two"], max_tokens=4).model_dump(),
    "completion_stream": streamed(complete(max_tokens=12, stream=True, stream_options={"include_usage": True})),
    "raw": client.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=2).status_code,
    "no_messages": refusal(lambda: client.chat.completions.create(model=MODEL, messages=[])),
    "too_long": refusal(lambda: chat(max_tokens=10_000_000)),
    "hot": refusal(lambda: chat(max_tokens=1, temperature=-1)),
    "grammar": refusal(lambda: chat(max_tokens=1, response_format={"type": "json_object"})),
    "no_route": refusal(lambda: client.embeddings.create(model=MODEL, input="x")),
    "wrong_key": refusal(lambda: client.with_options(api_key="wrong").models.list()),
    "many": asyncio.run(many(40)),
    "given_up": asyncio.run(given_up()),
}
begun = time.monotonic()
complete(max_tokens=1)
got["seconds_after"] = time.monotonic() - begun
print(json.dumps(got))
