"""`python -m sglang.multimodal_gen.benchmarks.bench_serving` of the installed release, see stand_ins.py."""

import logging
import runpy

import stand_ins

stand_ins.only(
    "sglang",
    ["sglang.multimodal_gen.benchmarks", "sglang.srt.utils.network"],
    sglang__multimodal_gen__runtime__utils__logging_utils={
        "init_logger": logging.getLogger, "configure_logger": lambda *_, **__: None},
    sglang__multimodal_gen__test__test_utils={
        "print_divider": lambda *_, **__: None, "print_value_formatted": lambda *_, **__: None},
)
runpy.run_module("sglang.multimodal_gen.benchmarks.bench_serving", run_name="__main__")
