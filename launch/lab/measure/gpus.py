"""The GPUs of this machine, by nvidia-smi."""

import shutil
import subprocess

FIELDS = ("index", "name", "driver_version", "clocks.max.sm", "power.limit", "memory.total")
SAMPLED = "timestamp,index,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,memory.used"


def describe():
    """A dictionary a GPU; empty where there is none."""
    if shutil.which("nvidia-smi") is None:
        return []
    found = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"],
                           capture_output=True, text=True)
    if found.returncode != 0:
        return []
    return [dict(zip(FIELDS, [word.strip() for word in line.split(",")])) for line in found.stdout.splitlines() if line]


class Sampler:
    """Clocks, power and temperature once a second into a CSV file, while it lives."""

    def __init__(self, path, gpus):
        self.file = open(path, "ab")
        self.process = subprocess.Popen(["nvidia-smi", f"--query-gpu={SAMPLED}", "--format=csv", "-lms", "1000",
                                         "-i", ",".join(gpus)], stdout=self.file, stderr=subprocess.DEVNULL,
                                        stdin=subprocess.DEVNULL)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.file.close()
