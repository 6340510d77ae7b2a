"""`vllm bench serve` of the installed release, see stand_ins.py."""

import argparse
import logging

import transformers

import sends
import stand_ins


def get_tokenizer(name, **_):
    return transformers.AutoTokenizer.from_pretrained(name)


stand_ins.only(
    "vllm",
    ["vllm.benchmarks", "vllm.utils.argparse_utils", "vllm.utils.import_utils", "vllm.utils.network_utils"],
    vllm__logger={"init_logger": logging.getLogger},
    vllm__tokenizers={"get_tokenizer": get_tokenizer},
    vllm__utils__gc_utils={"freeze_gc_heap": lambda: None},
)
from vllm.benchmarks import serve  # noqa: E402

sends.record()
parser = argparse.ArgumentParser()
serve.add_cli_args(parser)
serve.main(parser.parse_args())
