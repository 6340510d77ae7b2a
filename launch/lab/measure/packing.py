"""SGLang for a machine that has Python and PyTorch but no network: wheels in parts of a size that can be carried.

--pack asks pip what SGLang needs, downloads the wheels but for those that the other machine has (PyTorch and CUDA's
libraries), and cuts them into parts; --unpack checks and joins the parts and installs the wheels into a folder of their
own, without network. Both use the pip of the Python that runs this, which must be of the same version on both machines.
"""

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

PRESENT = "torch,torchvision,torchaudio,triton,nvidia-*,numpy,scipy,setuptools,pip,wheel"
MEGABYTE = 1_000_000
INDEX = "parts.json"


class BadPack(Exception):
    """One sentence."""


def add_arguments(group):
    group.add_argument("--pack", metavar="DIR", help="downloads SGLang's wheels into parts in DIR")
    group.add_argument("--sglang-version", default="0.5.12", metavar="V", help="that is packed (default 0.5.12)")
    group.add_argument("--present", default=PRESENT, metavar="NAMES",
                       help=f"packages that the other machine has, and that are left out (default {PRESENT})")
    group.add_argument("--part-size", type=int, default=60, metavar="MB", help="of a part at most (default 60)")
    group.add_argument("--unpack", metavar="DIR", help="installs what the parts in DIR hold, without network")
    group.add_argument("--to", metavar="DIR", help="where --unpack installs it; name it with --packages then")


def pip(*words):
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise BadPack(f"pip {words[0]}: {lines[-1] if lines else 'failed'}")
    return done.stdout


def is_present(name, present):
    name = name.lower().replace("_", "-")
    return any(name == word or (word.endswith("*") and name.startswith(word[:-1])) for word in present)


def needed_wheels(requirement, present):
    """NAME==VERSION of all that pip would install, but for those that are present."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        pip("install", "--quiet", "--dry-run", "--ignore-installed", "--report", report.name, requirement)
        installs = json.load(open(report.name))["install"]
    found = [(item["metadata"]["name"], item["metadata"]["version"]) for item in installs]
    return [f"{name}=={version}" for name, version in found if not is_present(name, present)]


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def cut(whole, folder, size):
    """Writes `whole` as part-000, part-001 … of at most `size` bytes, and the list of them."""
    for old in glob.glob(os.path.join(folder, "part-*")):
        os.remove(old)
    parts = []
    with open(whole, "rb") as file:
        while block := file.read(size):
            name = f"part-{len(parts):03d}"
            with open(os.path.join(folder, name), "wb") as part:
                part.write(block)
            parts.append({"name": name, "bytes": len(block), "sha256": sha256(os.path.join(folder, name))})
    return parts


def pack(args, say):
    if args.part_size < 1:
        raise BadPack(f"--part-size {args.part_size}: must be a whole number of MB from 1 up")
    os.makedirs(args.pack, exist_ok=True)
    requirement = f"sglang=={args.sglang_version}"
    say(f"asking pip what {requirement} needs")
    wheels = needed_wheels(requirement, [word.strip().lower() for word in args.present.split(",") if word.strip()])
    with tempfile.TemporaryDirectory(dir=args.pack) as work:
        say(f"downloading {len(wheels)} packages")
        pip("download", "--quiet", "--no-deps", "--dest", os.path.join(work, "wheels"), *wheels)
        for source in glob.glob(os.path.join(work, "wheels", "*.tar.gz")):  # no wheel is published of it
            pip("wheel", "--quiet", "--no-deps", "--wheel-dir", os.path.join(work, "wheels"), source)
            os.remove(source)
        whole = os.path.join(work, "wheels.tar")
        with tarfile.open(whole, "w") as tar:  # wheels are compressed
            for wheel in sorted(os.listdir(os.path.join(work, "wheels"))):
                tar.add(os.path.join(work, "wheels", wheel), wheel)
        parts = cut(whole, args.pack, args.part_size * MEGABYTE)
    with open(os.path.join(args.pack, INDEX), "w") as file:
        json.dump({"sglang": args.sglang_version, "python": sys.version.split()[0], "parts": parts}, file, indent=1)
    say(f"{args.pack}: {len(parts)} parts, {sum(part['bytes'] for part in parts) / MEGABYTE:.0f} MB, and {INDEX}")
    return 0


def read_index(folder):
    try:
        with open(os.path.join(folder, INDEX)) as file:
            index = json.load(file)
    except (OSError, ValueError):
        raise BadPack(f"--unpack {folder}: has no {INDEX} of --pack") from None
    for part in index["parts"]:
        path = os.path.join(folder, part["name"])
        if not os.path.exists(path):
            raise BadPack(f"--unpack {folder}: {part['name']} is missing, one of {len(index['parts'])} parts")
        if os.path.getsize(path) != part["bytes"] or sha256(path) != part["sha256"]:
            raise BadPack(f"--unpack {folder}: {part['name']} is damaged; carry it again")
    here, there = sys.version.split()[0].rsplit(".", 1)[0], index["python"].rsplit(".", 1)[0]
    if here != there:
        raise BadPack(f"--unpack {folder}: was packed with Python {there}, this is {here}; use that one")
    return index


class Joined:
    """The parts as one file that is read from its beginning to its end."""

    def __init__(self, folder, parts):
        self.paths = [os.path.join(folder, part["name"]) for part in parts]
        self.file = None

    def read(self, size):
        while True:
            if self.file is None:
                if not self.paths:
                    return b""
                self.file = open(self.paths.pop(0), "rb")
            block = self.file.read(size)
            if block:
                return block
            self.file.close()
            self.file = None


def unpack(args, say):
    if not args.to:
        raise BadPack("--to: is required with --unpack, the folder that SGLang is installed into")
    index = read_index(args.unpack)
    os.makedirs(args.to, exist_ok=True)
    wheels = tempfile.mkdtemp(dir=args.to)
    try:
        with tarfile.open(fileobj=Joined(args.unpack, index["parts"]), mode="r|") as tar:
            for member in tar:
                if not member.isfile() or os.path.basename(member.name) != member.name:
                    raise BadPack(f"--unpack {args.unpack}: holds {member.name!r}, which is no wheel")
                with open(os.path.join(wheels, member.name), "wb") as out:
                    shutil.copyfileobj(tar.extractfile(member), out)
        names = sorted(glob.glob(os.path.join(wheels, "*.whl")))
        say(f"installing {len(names)} packages into {args.to}")
        pip("install", "--quiet", "--no-index", "--no-deps", "--upgrade", "--target", args.to, *names)
    finally:
        shutil.rmtree(wheels, ignore_errors=True)
    say(f"SGLang {index['sglang']} is in {args.to}: --packages {args.to}")
    return 0


def run(args, say):
    if args.pack and args.unpack:
        raise BadPack("--pack and --unpack: are for two machines; name one")
    return pack(args, say) if args.pack else unpack(args, say)
