#!/usr/bin/env python3
"""Measures real SGLang servers: starts them, runs loads against them, and writes what `tpsim validate --measurements` and
`tpsim calibrate --from` read.

    measure.py --model-path DIR --tp 1 --loads closed:1024:256:16:48 azure:0:60:1 --output OUT -- --attention-backend fa3
    measure.py --plan PLAN.json --output OUT
    measure.py --pack PARTS [--sglang-version V]      with network: wheels in parts, for a machine without
    measure.py --unpack PARTS --to DIR                there; then --packages DIR

OUT receives NAME.jsonl (a line a request), NAME.log (the server's log, a line a batch), NAME.info.json (its own account
and the GPU's), NAME.gpu.csv (clocks and power) and models/. The same command again goes on where it ended.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sys
import time

import client
import gpus
import loads
import packing
import plan
import server

DONE, REFUSED, INCOMPLETE = 0, 2, 3
WARM_UP = (3000, 16)  # tokens of a request before the first load, which compiles kernels
FIRST_PORT = 31000


class Refused(Exception):
    """What cannot be carried out, in one sentence."""


def say(text):
    print(time.strftime("%H:%M:%S ") + text, flush=True)


class Results:
    """The files of one server."""

    def __init__(self, output, spec):
        self.base, self.spec = os.path.join(output, spec.name), spec
        self.state = {"server": spec.identity(), "done": []}
        try:
            with open(self.base + ".state.json") as file:
                self.state = json.load(file)
        except OSError:
            pass
        if self.state["server"] != spec.identity():
            raise Refused(f"server {spec.name}: {output} has measurements of it with other flags; choose another --output")

    def open_loads(self):
        """The loads that are still to be run; one that is named twice is run twice."""
        done = list(self.state["done"])
        left = []
        for load in self.spec.loads:
            if load in done:
                done.remove(load)
            else:
                left.append(load)
        return left

    def write_account(self, info, gpu, hardware):
        account = {**info, "hardware": hardware or (gpu[0]["name"] if gpu else ""), "gpus": gpu}
        self._replace(".info.json", json.dumps(account, indent=1, default=str))
        config = os.path.join(self.spec.model_path, "config.json")
        if os.path.isfile(config):
            folder = os.path.join(os.path.dirname(self.base), "models", os.path.basename(self.spec.model_path.rstrip("/")))
            os.makedirs(folder, exist_ok=True)
            shutil.copy(config, folder)

    def add(self, load, records):
        with open(self.base + ".jsonl", "a") as file:
            for record in records:
                file.write(json.dumps({"server": self.spec.name, "load": load, **record}) + "\n")
        self.state["done"].append(load)
        self._replace(".state.json", json.dumps(self.state, indent=1))

    def _replace(self, end, text):
        with open(self.base + end + ".part", "w") as file:
            file.write(text + "\n")
        os.replace(self.base + end + ".part", self.base + end)


def summary(records, seconds):
    good = [record for record in records if "error" not in record]
    failed = [record for record in records if "error" in record]
    if not good:
        return f"all {len(failed)} requests failed: {failed[0]['error'][:200]}"
    tokens = sum(record["osl"] - 1 for record in good)
    ttft = sum(record["first"] - record["sent"] for record in good) / len(good)
    text = f"{len(good)} requests in {seconds:.1f} s, TTFT {1e3 * ttft:.1f} ms"
    if tokens:
        text += f", TPOT {1e3 * sum(record['last'] - record['first'] for record in good) / tokens:.2f} ms"
    if failed:
        text += f"; {len(failed)} failed: {failed[0]['error'][:200]}"
    return text


async def measure_server(spec, results, port, own_gpus, args, deadline):
    """Runs the loads that are open. True where all were run."""
    running = server.Server(spec, args.output, port, own_gpus, args.packages)
    sampler = None
    try:
        began = time.time()
        running.start()
        say(f"{spec.name}: started on {'GPU ' + ','.join(own_gpus) if own_gpus else 'no GPU'}, log {running.log_path}")
        await running.wait_until_up(min(deadline, began + args.start_timeout))
        say(f"{spec.name}: up after {time.time() - began:.0f} s")
        described = [gpu for gpu in gpus.describe() if gpu["index"] in own_gpus]
        results.write_account(await running.info(), described, args.hardware)
        if described:
            sampler = gpus.Sampler(os.path.join(args.output, spec.name + ".gpu.csv"), own_gpus)
        vocabulary = spec.vocabulary()
        warm_up = await client.generate(port, [loads.LEAST_TOKEN + i % (vocabulary - loads.LEAST_TOKEN)
                                               for i in range(WARM_UP[0])], WARM_UP[1])
        if "error" in warm_up:
            raise server.ServerFailed(f"{spec.name}: the first request failed: {warm_up['error']}")
        for name in results.open_loads():
            await running.flush_cache()
            logged, begin = running.log_bytes(), time.time()
            try:
                records = await asyncio.wait_for(client.send(port, loads.make_load(name, args.traces), vocabulary),
                                                 max(0.1, deadline - begin))
            except asyncio.TimeoutError:
                say(f"{spec.name}: {name}: not finished when the time was over; left out")
                return False
            running.check()
            seconds = time.time() - begin
            if all("error" in record for record in records):
                raise server.ServerFailed(f"{spec.name}: {name}: {summary(records, seconds)}")
            results.add(name, records)
            say(f"{spec.name}: {name}: {summary(records, seconds)}")
            if running.decode_lines(logged) == 0:
                say(f"{spec.name}: {name}: no decode batch in the log; steps are not measured (a --log-level?)")
        return True
    finally:
        if sampler:
            sampler.end()
        await asyncio.to_thread(running.end)


async def measure_all(specs, all_results, free_gpus, args):
    """Servers side by side as far as there are GPUs. How many were not finished."""
    deadline = time.time() + args.deadline if args.deadline else float("inf")
    freed, incomplete, tasks = asyncio.Condition(), [], []

    async def one(spec, results, port, own_gpus):
        try:
            if not await measure_server(spec, results, port, own_gpus, args, deadline):
                incomplete.append(spec.name)
        except (server.ServerFailed, client.ServerGone) as error:
            incomplete.append(spec.name)
            say(str(error))
        finally:
            async with freed:
                free_gpus.extend(own_gpus)
                freed.notify_all()

    for i, (spec, results) in enumerate(zip(specs, all_results)):
        if not results.open_loads():
            say(f"{spec.name}: all loads are measured")
            continue
        async with freed:
            await freed.wait_for(lambda: len(free_gpus) >= spec.tp)
            own = [free_gpus.pop(0) for _ in range(spec.tp)]
        if time.time() > deadline:
            incomplete.append(spec.name)
            continue
        tasks.append(asyncio.create_task(one(spec, results, args.port + i, own)))
    await asyncio.gather(*tasks)
    return incomplete


def check_packages(args):
    if args.packages and not os.path.isdir(args.packages):
        raise Refused(f"--packages {args.packages}: is no folder; unpack one with --unpack")
    if args.server_command:
        return
    if args.packages:
        sys.path.insert(0, args.packages)
    if importlib.util.find_spec("sglang") is None:
        raise Refused(f"sglang is not installed for {sys.executable}; pip install sglang, or on a machine without network "
                      "--unpack PARTS --to DIR and then --packages DIR")


def choose_gpus(args, specs):
    known = [gpu["index"] for gpu in gpus.describe()]
    chosen = args.gpus.split(",") if args.gpus else known
    if not chosen:
        raise Refused("no GPU is found (nvidia-smi tells none); --gpus names some")
    for gpu in chosen:
        if known and gpu not in known:
            raise Refused(f"--gpus {args.gpus}: there is no GPU {gpu}, only {','.join(known)}")
    most = max(spec.tp for spec in specs)
    if most > len(chosen):
        raise Refused(f"--tp {most}: needs as many GPUs, there are {len(chosen)} ({','.join(chosen)})")
    return chosen


def run(args, server_flags):
    if not args.output:
        raise Refused("--output: is required, a folder for what is measured")
    if bool(args.plan) == bool(args.model_path):
        raise Refused("--model-path or --plan: one of the two is required")
    if args.plan:
        specs = plan.read_plan(args.plan, args.loads, args.server_command)
    else:
        specs = [plan.ServerSpec(args.model_path, args.name, args.tp, server_flags, args.loads, None, args.server_command)]
    plan.check_all(specs)
    for spec in specs:
        for load in spec.loads:
            loads.make_load(load, args.traces)
    check_packages(args)
    chosen = choose_gpus(args, specs)
    os.makedirs(args.output, exist_ok=True)
    results = [Results(args.output, spec) for spec in specs]

    async def interruptible():
        task = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await measure_all(specs, results, chosen, args)

    try:
        incomplete = asyncio.run(interruptible())
    except asyncio.CancelledError:
        say("interrupted; loads that were finished are written, the same command goes on")
        return INCOMPLETE
    if incomplete:
        say(f"not finished: {', '.join(incomplete)}; the same command goes on")
        return INCOMPLETE
    say(f"tpsim validate --measurements {os.path.join(args.output, '*.jsonl')} --report-dir report")
    say(f"tpsim calibrate --from {os.path.join(args.output, '*.jsonl')} --hardware GPU --output mine.json")
    return DONE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_argument_group("what is measured")
    what.add_argument("--model-path", help="a folder with config.json (weights are made up where it has none), or a name")
    what.add_argument("--tp", type=int, default=1, help="GPUs of the server (default 1)")
    what.add_argument("--name", help="of the server, and of its files (default: model, tp and flags)")
    what.add_argument("--loads", nargs="*", default=[], metavar="LOAD", help="; ".join(form for form, _ in loads.FORMS.values()))
    what.add_argument("--plan", metavar="FILE", help=f"several servers. {plan.__doc__.split(chr(10) * 2)[1]}")
    what.add_argument("--traces", metavar="DIR", help="where azure's and mooncake's traces are")
    how = parser.add_argument_group("how")
    how.add_argument("--output", metavar="DIR", help="receives the files")
    how.add_argument("--gpus", help="0,1,…: those to use (default: all); servers that fit run side by side")
    how.add_argument("--deadline", type=float, metavar="SECONDS", help="ends by then; unfinished loads are left out")
    how.add_argument("--start-timeout", type=float, default=900, metavar="SECONDS", help="for a server to come up (default 900)")
    how.add_argument("--port", type=int, default=FIRST_PORT, help=f"of the first server (default {FIRST_PORT})")
    how.add_argument("--hardware", help="the GPU as tpsim calls it, where nvidia-smi's name is not known to it")
    how.add_argument("--packages", metavar="DIR", help="where --unpack put SGLang")
    how.add_argument("--server-command", metavar="WORDS", help="instead of python -m sglang.launch_server")
    packing.add_arguments(parser.add_argument_group("a machine without network"))
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args, server_flags = parser.parse_args(words[:at]), words[at + 1:]
    try:
        return packing.run(args, say) if args.pack or args.unpack else run(args, server_flags)
    except (Refused, plan.BadPlan, loads.BadLoad, packing.BadPack) as error:
        print(f"measure.py: {error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
