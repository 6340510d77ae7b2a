#!/usr/bin/env python3
"""Makes the pictures in the README: launch/report/sample.png from the report of the tour, and that of the pipelines.

    ./launch/run && launch/report/sample_picture.py tpsim-report/report.html launch/report/sample.png 1600
    ./launch/run compare … --report-dir out && launch/report/sample_picture.py out/report.html launch/diffusion/sample.png 900

Chromium takes the picture (light mode); 256 colours make it small.
"""

import collections
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

WIDTH = 1240


def screenshot(page, picture, profile, height):
    subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-lcd-text",
         "--blink-settings=preferredColorScheme=1", f"--user-data-dir={profile}", "--virtual-time-budget=8000",
         f"--window-size={WIDTH},{height}", f"--screenshot={picture}", page.resolve().as_uri()],
        check=True, capture_output=True)


def pixels(data):
    """Rows of (red, green, blue) of a PNG as Chromium writes it: 8 bits a channel, not interlaced."""
    position, packed = 8, b""
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position:position + 8])
        body = data[position + 8:position + 8 + length]
        position += 12 + length
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            packed += body
    size = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw, stride, before = zlib.decompress(packed), width * size, bytes(width * size)
    for y in range(height):
        row = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        filtered = raw[y * (stride + 1)]
        for x in range(stride if filtered else 0):
            left, up, corner = (row[x - size], before[x], before[x - size]) if x >= size else (0, before[x], 0)
            estimate = left + up - corner
            nearest = min((abs(estimate - v), k) for k, v in enumerate((left, up, corner)))[1]
            guess = (0, left, up, (left + up) // 2, (left, up, corner)[nearest])[filtered]
            row[x] = (row[x] + guess) & 255
        before = bytes(row)
        yield [tuple(row[x:x + 3]) for x in range(0, stride, size)]


def indexed(rows):
    """The same picture with the 256 colours that occur most; others become the nearest of them."""
    counts = collections.Counter(pixel for row in rows for pixel in row)
    palette = [colour for colour, _ in counts.most_common(256)]
    number = {colour: i for i, colour in enumerate(palette)}
    for colour in counts:
        if colour not in number:
            number[colour] = min(range(len(palette)), key=lambda i: sum((a - b) ** 2 for a, b in zip(colour, palette[i])))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packed = zlib.compress(b"".join(b"\0" + bytes(number[p] for p in row) for row in rows), 9)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0))
            + chunk(b"PLTE", b"".join(map(bytes, palette))) + chunk(b"IDAT", packed) + chunk(b"IEND", b""))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder, "picture.png")
        screenshot(pathlib.Path(sys.argv[1]), picture, pathlib.Path(folder, "profile"), int(sys.argv[3]))
        small = indexed(list(pixels(picture.read_bytes())))
    target = pathlib.Path(sys.argv[2])
    target.write_bytes(small)
    print(f"{target}: {len(small)} bytes")


if __name__ == "__main__":
    main()
