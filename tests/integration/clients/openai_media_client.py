"""Images and videos by the OpenAI Python SDK; prints what it saw as JSON.

Usage: openai_media_client.py BASE_URL images|edits|videos
"""

import base64
import io
import json
import sys
import time

import openai
from PIL import Image


def picture(width, height):
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, "JPEG")
    return ("input.jpg", out.getvalue(), "image/jpeg")


def size_of(image):
    return list(Image.open(io.BytesIO(base64.b64decode(image.b64_json))).size)


def main():
    client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    seen = {}
    if sys.argv[2] == "images":
        made = client.images.generate(model="any", prompt="a cat", n=2, size="512x512", response_format="b64_json")
        seen["sizes"] = [size_of(image) for image in made.data]
        made = client.images.generate(model="any", prompt="a cat", extra_body={"num_inference_steps": 2})
        seen["url"] = made.data[0].url
        try:
            client.images.generate(model="any", prompt="a cat", size="huge")
        except openai.BadRequestError as error:
            seen["refused"] = error.body
    elif sys.argv[2] == "edits":
        made = client.images.edit(model="any", prompt="bluer", image=picture(640, 480), size="640x480")
        seen["sizes"] = [size_of(image) for image in made.data]
    else:
        job = client.videos.create(model="any", prompt="a cat", size="832x480", seconds="1",
                                   input_reference=picture(300, 600), extra_body={"num_inference_steps": 4})
        seen["created"] = job.status
        states = set()
        while job.status not in ("completed", "failed"):
            states.add(job.status)
            job = client.videos.retrieve(job.id)
            time.sleep(0.01)
        seen.update(states=sorted(states), job=job.model_dump(), listed=[v.id for v in client.videos.list()])
        seen["bytes"] = len(client.videos.download_content(job.id).read())
        seen["deleted"] = client.videos.delete(job.id).model_dump()
    print(json.dumps(seen))


main()
