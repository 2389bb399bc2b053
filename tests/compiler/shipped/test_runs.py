from __future__ import annotations

import pytest

from kernelopt_bot.compiler._runtime import (
    consecutive,
    find_runs,
    inside_and_dying,
    read_wrapper,
    run_hash,
    run_slots,
)


def pair(text: str, first: int = 0) -> tuple[str, list[str]]:
    w = read_wrapper(text)
    calls = w.calls[first:first + 2]
    return run_hash(calls, w.kernels), [s.name for s in run_slots(calls, w.kernels)]


def test_calls_in_order(inference: str) -> None:
    calls = find_runs(inference)
    assert [c.kernel.split("_fused_")[1] for c in calls] == [
        "native_layer_norm_0", "addmm_gelu_view_1", "add_addmm_view_2"]
    assert calls[0].integers == {"xnumel": 1024, "r0_numel": 256}
    assert [b.root for b in calls[1].bindings] == ["buf4", "arg4_1", ""]  # buf5 is a view of buf4


def test_partitions_are_walked(partitioned: str) -> None:
    calls = find_runs(partitioned)
    assert len(calls) == 3
    assert {c.statement.scope.name for c in calls} == {"partition_0"}


def test_equal_calls_have_equal_hashes_and_only_they(backward: str) -> None:
    w = read_wrapper(backward)
    hashes = [run_hash([c], w.kernels) for c in w.calls]
    assert hashes[1] == hashes[5] == hashes[6]
    assert len(set(hashes)) == 5


def test_hash_ignores_names_but_not_which_arguments_share_memory(inference: str) -> None:
    w = read_wrapper(inference)
    first = run_hash(w.calls[:1], w.kernels)
    renamed = read_wrapper(inference.replace("arg0_1", "argument").replace("buf3", "buffer"))
    assert run_hash(renamed.calls[:1], renamed.kernels) == first
    shared = read_wrapper(inference.replace("run(arg2_1, arg0_1, arg1_1, buf3,", "run(arg2_1, arg0_1, arg0_1, buf3,"))
    assert run_hash(shared.calls[:1], shared.kernels) != first
    moved = read_wrapper(inference.replace(
        "run(arg2_1, arg0_1,", "run(reinterpret_tensor(arg2_1, (4,), (1,), 4), arg0_1,"))
    assert run_hash(moved.calls[:1], moved.kernels) != first


def test_symbolic_arguments_have_no_hash(inference: str) -> None:
    w = read_wrapper(inference.replace("buf3, 1024, 256,", "buf3, 128*s0, 256,"))
    assert run_hash(w.calls[:1], w.kernels) == ""
    assert run_hash(w.calls[1:2], w.kernels) != ""


def test_a_vendor_call_ends_a_run(inference: str, backward: str) -> None:
    w = read_wrapper(inference)
    assert not consecutive(w.calls[:2], w.statements)
    w = read_wrapper(backward)
    assert consecutive(w.calls[:2], w.statements)


def test_a_buffer_that_lives_only_inside_is_no_slot(backward: str) -> None:
    assert pair(backward)[1] == ["p0", "xnumel_0", "r0_numel_0", "p1", "xnumel_1", "r0_numel_1"]


def test_a_buffer_used_after_the_run_is_a_slot(backward: str) -> None:
    freed = "            del buf2\n"
    assert freed in backward
    read_later = backward.replace(freed, f"            extern_kernels.mm(buf2, buf2, out=buf0)\n{freed}", 1)
    assert {"p0", "p1", "p2"} <= set(pair(read_later)[1])
    assert pair(read_later)[0] != pair(backward)[0]


def test_a_returned_buffer_is_a_slot(backward: str) -> None:
    line = next(n for n in backward.split("\n") if n.startswith("        return ("))
    returned = backward.replace("            del buf2\n", "").replace(line, line.replace("return (", "return (buf2, "))
    assert "p2" in pair(returned)[1]


@pytest.mark.parametrize("statement", [
    "torch.cuda.synchronize()", "x = something(buf3)", "extern_kernels.mm(a, b, out=c)"])
def test_unknown_statements_end_a_run(backward: str, statement: str) -> None:
    w = read_wrapper(backward)
    line = backward.split("\n")[w.calls[1].statement.lines[0] - 1]
    w = read_wrapper(backward.replace(line, f"            {statement}\n{line}"))
    assert not consecutive(w.calls[:2], w.statements)


KERNEL = """
import triton
import triton.language as tl
@triton_heuristics.pointwise(size_hints={'x': 8}, filename=__file__, triton_meta={'signature': {SIGNATURE}},
                             inductor_meta={'mutated_arg_names': []})
@triton.jit
def kernel(NAMES):
    pass
"""


def wrapper(body: str) -> str:
    """Kernels `scale` (in place), `copy` (in_ptr0 -> out_ptr0), around a convolution."""
    definitions = ""
    for name, parameters in (("scale", ("in_out_ptr0",)), ("copy", ("in_ptr0", "out_ptr0"))):
        source = KERNEL.replace("SIGNATURE", ", ".join(f"'{p}': '*fp32'" for p in parameters)).replace(
            "NAMES", ", ".join(parameters))
        definitions += f"{name} = async_compile.triton('{name}', '''{source}''', device_str='cuda')\n"
    lines = "\n".join(f"            {line}" for line in body.strip().splitlines())
    return (f"{definitions}async_compile.wait(globals())\nclass Runner:\n    def call(self, args):\n"
            f"        arg0_1, arg1_1 = args\n        with torch.cuda._DeviceGuard(0):\n{lines}\n"
            "        return (buf9, )\n")


def roles(body: str, first: int = 0, count: int = 2) -> tuple[set[str], set[str]]:
    w = read_wrapper(wrapper(body))
    inside, dying = inside_and_dying(w.calls[first:first + count])
    return set(inside), set(dying)


CONVOLUTION = """
buf0 = extern_kernels.convolution(arg0_1, arg1_1)
buf1 = buf0; del buf0  # reuse
scale.run(buf1, stream=stream0)
buf9 = empty_strided_cuda((4, ), (1, ), torch.float32)
copy.run(buf1, buf9, stream=stream0)
"""


def test_what_a_convolution_made_dies_in_the_run_that_reads_it_last() -> None:
    assert roles(CONVOLUTION) == (set(), {"buf0"})
    assert roles(CONVOLUTION.replace("extern_kernels.convolution", "torch.ops.aten.whatever")) == (set(), set())
    assert roles(CONVOLUTION + "copy.run(buf1, buf9, stream=stream0)") == (set(), set())


def test_a_buffer_whose_memory_goes_on_to_another_value_dies() -> None:
    reused = CONVOLUTION + "buf3 = buf1; del buf1  # reuse\ncopy.run(buf9, buf3, stream=stream0)\n"
    assert roles(reused) == (set(), {"buf0"})
    in_place = reused.replace("copy.run(buf9, buf3,", "copy.run(buf3, buf9,")
    assert roles(in_place) == (set(), set())
    only_a_part = reused.replace("buf3 = buf1; del buf1  # reuse", "buf3 = reinterpret_tensor(buf1, (2, ), (1, ), 0)")
    assert roles(only_a_part) == (set(), set())


def test_a_buffer_made_from_old_memory_lives_only_inside() -> None:
    body = """
buf0 = empty_strided_cuda((4, ), (1, ), torch.float32)
copy.run(arg0_1, buf0, stream=stream0)
buf2 = buf0; del buf0  # reuse
copy.run(arg1_1, buf2, stream=stream0)
buf9 = empty_strided_cuda((4, ), (1, ), torch.float32)
copy.run(buf2, buf9, stream=stream0)
"""
    assert roles(body, first=1) == ({"buf0"}, set())
    assert roles(body.replace("buf2 = buf0; del buf0  # reuse", "buf2 = buf0"), first=1) == (set(), {"buf0"})


def test_what_dies_is_part_of_the_hash() -> None:
    dies, lives = (read_wrapper(wrapper(CONVOLUTION + more)) for more in ("", "copy.run(buf1, buf9, stream=stream0)"))
    assert run_hash(dies.calls[:2], dies.kernels) != run_hash(lives.calls[:2], lives.kernels)


def test_an_alignment_of_an_unseen_input_does_not_end_a_run() -> None:
    line = "arg1_1 = copy_if_misaligned(arg1_1)\ncopy.run(buf1, buf9"
    aligned = CONVOLUTION.replace("copy.run(buf1, buf9", line)
    w = read_wrapper(wrapper(aligned))
    assert consecutive(w.calls, w.statements)
    w = read_wrapper(wrapper(aligned.replace("scale.run(buf1", "scale.run(arg1_1")))
    assert not consecutive(w.calls, w.statements)
