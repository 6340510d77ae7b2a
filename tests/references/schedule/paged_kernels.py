"""The two Triton kernels of the paged allocator before 0.5.23, which have no CPU version, in PyTorch."""

import torch


class _Launched:
    """Called as Triton kernels are: kernel[grid](arguments)."""

    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return self.function


def replace_in(module):
    """module: sglang's allocator module, which has alloc_extend_naive of its own."""

    def extend(prefix_lens, seq_lens, last_loc, free_pages, out_indices, _, page_size):
        # It may not be asked for more pages than are free: the kernel reads past the end then, and alloc_extend
        # answers None.
        pages = ((seq_lens + page_size - 1) // page_size - (prefix_lens + page_size - 1) // page_size).sum()
        if pages <= len(free_pages):
            module.alloc_extend_naive(prefix_lens, seq_lens, last_loc, free_pages, out_indices, page_size, "cpu")

    def decode(seq_lens, last_loc, free_pages, out_indices, _, page_size):
        new = (seq_lens - 1) % page_size == 0
        rank = torch.cumsum(new, 0) - 1
        if int(new.sum()) <= len(free_pages):
            out_indices.copy_(last_loc + 1)
            out_indices[new] = free_pages[rank[new]] * page_size

    module.alloc_extend_kernel = _Launched(extend)
    module.alloc_decode_kernel = _Launched(decode)
