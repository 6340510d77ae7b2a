"""Zeroes the kernels that GPUs of one kind never load, so that shared libraries pack small and behave the same.

    python3 prune_fatbins.py 90 LIBRARY.so ...      in place; 90: sm_90

How SGLang 0.5.23 came to a machine with PyTorch 2.11 and no network (h200-sxm_servers/eighth): its wheels with
PyTorch 2.14.1, Triton 3.8 and NCCL 2.30.7, of CUDA's other libraries those of the machine (linked into nvidia/ beside
torch/), all libraries pruned, `zstd -12 --long=27`: 2.6 GB, 460 MB packed; flash_ops.abi3.so with --long=31 and
nvidia_cutlass_dsl besides. Headers stay as they are: the driver chooses among them, and what it does not choose it
does not read. Where a library has no kernel of that kind, its PTX stays.
"""
import mmap
import struct
import sys

MAGIC, PTX, CUBIN, ARCH = 0xBA55ED50, 1, 2, 28  # ARCH: where an entry's header says it


def fatbin_sections(file):
    header = file.read(64)
    offset = struct.unpack_from("<Q", header, 40)[0]
    size, count, names_at = struct.unpack_from("<HHH", header, 58)
    file.seek(offset)
    table = file.read(size * count)
    sections = [struct.unpack_from("<IIQQQQ", table, i * size) for i in range(count)]  # name, type, …, offset, size
    file.seek(sections[names_at][4])
    names = file.read(sections[names_at][5])
    return [(s[4], s[5]) for s in sections if b"fatbin" in names[s[0]:names.index(b"\0", s[0])].lower() and s[1] != 8]


def entries(data, begin, end):
    """(kind, architecture, offset, bytes) of what a fatbin holds."""
    while begin < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", data, begin)
        yield kind, struct.unpack_from("<I", data, begin + ARCH)[0], begin + header, size
        begin += header + size


def prune(path, arch):
    kept = zeroed = 0
    with open(path, "r+b") as file:
        sections = fatbin_sections(file)
        data = mmap.mmap(file.fileno(), 0)
        for at, size in sections:
            end = at + size
            while at < end - 16:
                magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
                if magic != MAGIC:
                    at += 8
                    continue
                found = list(entries(data, at + header, at + header + length))
                native = any(kind == CUBIN and of == arch for kind, of, _, _ in found)
                for kind, of, begin, length_of in found:
                    if (kind == CUBIN and of == arch) if native else (kind == PTX and of <= arch):
                        kept += length_of
                    else:
                        data[begin:begin + length_of] = bytes(length_of)
                        zeroed += length_of
                at += header + length
        data.flush()
    print(f"{path}: {kept / 1e6:.0f} MB kept, {zeroed / 1e6:.0f} MB zeroed")


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    for library in sys.argv[2:]:
        prune(library, int(sys.argv[1]))
