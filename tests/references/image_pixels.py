"""Pixels of an image that has a number, a width and a height and no picture, as a model's processor would hand them
over: the generator of rank/numeric/vision/patches.h, a splitmix64 of a counter, as fp32 in [-1, 1)."""

import numpy
import torch

GOLDEN = 0x9E3779B97F4A7C15


def pixels(shape, number, width, height):
    with numpy.errstate(over="ignore"):
        seed = numpy.uint64((number * GOLDEN & (1 << 64) - 1) ^ (width << 32 | height))
        z = seed + (numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64) + numpy.uint64(1)) * numpy.uint64(GOLDEN)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    values = (z >> numpy.uint64(40)).astype(numpy.float32) / numpy.float32(1 << 23) - numpy.float32(1)
    return torch.from_numpy(values).reshape(shape)
