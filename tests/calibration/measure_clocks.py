"""How matrix products slow down as a GPU reaches its power limit: milliseconds of every call in a row.

    python3 measure_clocks.py OUT.csv

Each case begins after two idle seconds. One row is one call, with clocks and power where they were read (at the
beginning, and after each quarter of the calls was queued):

    case,call,ms,sm_mhz,watts

Cases: bf16 products [8192,4096]x[4096,28672] and of 1,024 rows, the first with a copy of half its time after each,
and in fp8.
"""
import csv
import sys
import time

import pynvml
import torch


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def state(device):
    return (pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM),
            round(pynvml.nvmlDeviceGetPowerUsage(device) / 1e3, 1))


def write(out, case, milliseconds, states):
    """`states`: at the beginning and after each quarter."""
    quarter = len(milliseconds) // 4
    at = {max(0, i * quarter - 1): read for i, read in enumerate(states)}
    for i, ms in enumerate(milliseconds):
        out.writerow([case, i, ms, *at.get(i, ("", ""))])


def run(out, device, case, count, call, between=lambda: None):
    call()
    between()
    torch.cuda.synchronize()
    time.sleep(2)
    states, events = [state(device)], []
    for _ in range(4):
        for _ in range(count // 4):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            between()
            events.append((begin, end))
        events[-max(1, count // 16)][1].synchronize()
        states.append(state(device))
    torch.cuda.synchronize()
    write(out, case, [round(begin.elapsed_time(end), 5) for begin, end in events], states)


def main():
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetHandleByIndex(0)
    weights, wide, narrow = normal(4096, 28672) * 0.02, normal(8192, 4096), normal(1024, 4096)
    product, small = normal(8192, 28672), normal(1024, 28672)
    source = normal(int(1.25e-3 * 4.2e12 / 2 / 2))  # read and written in half the time of a product
    copy = torch.empty_like(source)
    fp8, one = torch.float8_e4m3fn, torch.ones((), device="cuda")
    wide8, weights8 = wide.to(fp8), weights.t().contiguous().to(fp8).t()
    with open(sys.argv[1], "w", newline="") as file:
        out = csv.writer(file)
        out.writerow("case,call,ms,sm_mhz,watts".split(","))
        run(out, device, "bf16 8192", 600, lambda: torch.mm(wide, weights, out=product))
        run(out, device, "bf16 1024", 3000, lambda: torch.mm(narrow, weights, out=small))
        run(out, device, "bf16 8192 and a copy", 600, lambda: torch.mm(wide, weights, out=product),
            lambda: copy.copy_(source))
        run(out, device, "fp8 8192", 800, lambda: torch._scaled_mm(wide8, weights8, scale_a=one, scale_b=one,
                                                                     out_dtype=torch.bfloat16))


if __name__ == "__main__":
    main()
