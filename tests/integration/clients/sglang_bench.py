"""`python -m sglang.bench_serving` of the installed release, see stand_ins.py."""

import runpy

import sends
import stand_ins

stand_ins.only(
    "sglang",
    ["sglang.benchmark", "sglang.bench_serving", "sglang.srt.utils.network"],
    sglang__srt__disaggregation__utils={"FAKE_BOOTSTRAP_HOST": "2.2.2.2"},
)
# Of Hugging Face's data sets only images of MMMU are asked for.
stand_ins.nothing("datasets")
sends.record()
runpy.run_module("sglang.bench_serving", run_name="__main__")
