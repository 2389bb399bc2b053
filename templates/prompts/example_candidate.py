import triton
import triton.language as tl


@triton.jit
def partial_sums(in_ptr0, sums, r0_numel, CHUNKS: tl.constexpr, BLOCK: tl.constexpr):
    chunk = tl.program_id(0)
    row = tl.program_id(1)
    length = tl.cdiv(r0_numel, CHUNKS)
    begin = chunk * length
    end = tl.minimum(begin + length, r0_numel)
    total = tl.full([BLOCK], 0.0, tl.float32)
    for start in range(begin, end, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.load(in_ptr0 + row.to(tl.int64) * r0_numel + column, mask=column < end, other=0.0)
    tl.store(sums + row * CHUNKS + chunk, tl.sum(total, 0))


@triton.jit
def combine(sums, out_ptr0, r0_numel, CHUNKS: tl.constexpr):
    row = tl.program_id(0)
    values = tl.load(sums + row * CHUNKS + tl.arange(0, CHUNKS))
    tl.store(out_ptr0 + row, tl.sum(values, 0) / r0_numel)
