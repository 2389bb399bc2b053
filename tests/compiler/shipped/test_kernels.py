from __future__ import annotations

import pytest

from kernelopt_bot.compiler._runtime import kernel_hash, read_wrapper


@pytest.fixture(scope="module")
def source(inference: str) -> str:
    return read_wrapper(inference).kernels["triton_per_fused_native_layer_norm_0"].text


@pytest.mark.parametrize(("old", "new"), [
    ("filename=__file__", "filename='/somewhere/else.py'"),
    ("'backend_hash': '91D1", "'backend_hash': '0000"),
    ("index=0", "index=3"),
    ("multi_processor_count=132", "multi_processor_count=114"),
    ("'autotune_remote_cache': None", "'autotune_remote_cache': True"),
    ("    rnumel = r0_numel\n", "    rnumel = r0_numel  # rows\n\n"),
    ("native_layer_norm_0", "native_layer_norm_12"),
])
def test_what_differs_between_machines_and_positions_does_not_count(source: str, old: str, new: str) -> None:
    assert old in source
    assert kernel_hash(source.replace(old, new)) == kernel_hash(source)


@pytest.mark.parametrize(("old", "new"), [
    ("1e-05", "1e-06"), ("'in_ptr0': '*fp32'", "'in_ptr0': '*bf16'"), ("xnumel = 1024", "xnumel = 1023"),
    ("'grid_type': 'Grid1D'", "'grid_type': 'Grid2D'"), ("'mutated_arg_names': []", "'mutated_arg_names': ['in_ptr0']"),
    ("(3,): [['tt.divisibility', 16]]", "(3,): []"), ("'enable_fp_fusion': True", "'enable_fp_fusion': False"),
    ("eviction_policy='evict_last'", "eviction_policy='evict_first'"), ("tmp25 + tmp26", "tmp25 - tmp26"),
])
def test_what_decides_the_result_counts(source: str, old: str, new: str) -> None:
    assert old in source
    assert kernel_hash(source.replace(old, new)) != kernel_hash(source)


def test_any_text_has_a_hash() -> None:
    cpp = '#include "/tmp/prefix.h"\nextern "C" void kernel(float* x) { x[0] = 1; }'
    assert kernel_hash(cpp) == kernel_hash(cpp.replace("/tmp/prefix.h", "/var/prefix.h"))
    assert kernel_hash(cpp) != kernel_hash(cpp.replace("= 1", "= 2"))
    assert len(kernel_hash("")) == 24


def test_facts_of_a_kernel(inference: str) -> None:
    kernel = read_wrapper(inference).kernels["triton_per_fused_native_layer_norm_0"]
    assert (kernel.heuristic, kernel.device, kernel.multiprocessors, kernel.capability) == (
        "persistent_reduction", "cuda", 132, 90)
    assert kernel.parameters == ("in_ptr0", "in_ptr1", "in_ptr2", "out_ptr2", "xnumel", "r0_numel")
    assert kernel.divisible == set(kernel.parameters)
    assert kernel.size_hints == {"x": 1024, "r0_": 256}
    assert inference.split("\n")[kernel.lines[0] - 1].startswith(kernel.name)
