"""The Inductor options that the levers `dispatch` and `launch` may set, and those refused by name.

An option is here only if it cannot change the precision of an operation, freeze weights, relax a check or change
what the caller sees; every other option is refused. All of them exist in `torch._inductor.config` of torch
2.11 and 2.13 (checked against both; a test checks the installed one). The values are those that an artifact accepts,
`compiler/shipped/recipe.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelopt_bot.compiler.shipped.recipe import RECIPE_VALUES, recipe_permits
from kernelopt_bot.contract.candidate import Lever, Scalar
from kernelopt_bot.contract.violation import Violation

GPU, CPU = "cuda", "cpu"


@dataclass(frozen=True)
class Option:
    """`values` lists what it may be set to; bool and int are told apart."""

    name: str
    lever: Lever
    devices: tuple[str, ...]
    values: tuple[Scalar, ...]
    why: str
    """Why it cannot change the precision of an operation."""

    def accepts(self, value: object) -> bool:
        return recipe_permits(self.name, value)


def _option(name: str, lever: Lever, devices: tuple[str, ...], why: str) -> Option:
    return Option(name, lever, devices, RECIPE_VALUES[name], why)


def _dispatch(devices: tuple[str, ...], name: str, why: str) -> Option:
    return _option(name, "dispatch", devices, why)


_BOTH = (GPU, CPU)

_OPTIONS = (
    _option("triton.cudagraphs", "launch", (GPU,), "records and replays the same kernels"),
    _option("triton.cudagraph_support_input_mutation", "launch", (GPU,), "which graphs may be recorded"),
    _option("graph_partition", "launch", (GPU,), "which parts of a graph are recorded; the kernels stay"),
    _option("cpp_wrapper", "launch", (CPU,), "the same kernels called from C++ instead of Python"),
    _dispatch(_BOTH, "layout_optimization", "memory order of convolutions, not their arithmetic type"),
    _dispatch(_BOTH, "force_layout_optimization", "memory order of convolutions, not their arithmetic type"),
    _dispatch(_BOTH, "comprehensive_padding", "strides of intermediates only"),
    _dispatch(_BOTH, "shape_padding", "pads products with zeros, which add exactly"),
    _dispatch(_BOTH, "conv_1x1_as_mm", "the same sum of products at the same input type"),
    _dispatch(_BOTH, "decompose_mem_bound_mm", "the same products, summed in float32 by a kernel"),
    _dispatch(_BOTH, "epilogue_fusion", "where a pointwise tail runs"),
    _dispatch(_BOTH, "aggressive_fusion", "which kernels are merged"),
    _dispatch(_BOTH, "max_fusion_size", "which kernels are merged"),
    _dispatch(_BOTH, "loop_ordering_after_fusion", "order of loops over independent elements"),
    _dispatch(_BOTH, "loop_index_inversion_in_fusion", "order of loops over independent elements"),
    _dispatch(_BOTH, "pick_loop_orders", "order of loops over independent elements"),
    _dispatch(_BOTH, "permute_fusion", "where a transposition runs"),
    _dispatch(_BOTH, "expand_dimension_for_pointwise_nodes", "shape of a pointwise loop"),
    _dispatch(_BOTH, "realize_reads_threshold", "what is stored instead of computed twice"),
    _dispatch(_BOTH, "realize_opcount_threshold", "what is stored instead of computed twice"),
    _dispatch(_BOTH, "realize_acc_reads_threshold", "what is stored instead of computed twice"),
    _dispatch(_BOTH, "unroll_reductions_threshold", "writes a short sum out as additions"),
    _dispatch(_BOTH, "split_reductions", "order of a float32 sum"),
    _dispatch(_BOTH, "min_num_split", "order of a float32 sum"),
    _dispatch(_BOTH, "online_softmax", "one pass or two over the same float32 exponentials"),
    _dispatch(_BOTH, "max_pointwise_cat_inputs", "how a concatenation is copied"),
    _dispatch(_BOTH, "force_pointwise_cat", "how a concatenation is copied"),
    _dispatch(_BOTH, "split_cat_fx_passes", "how splits and concatenations are copied"),
    _dispatch(_BOTH, "reorder_for_locality", "order of independent operations"),
    _dispatch(_BOTH, "inplace_buffers", "which memory an intermediate uses"),
    _dispatch(_BOTH, "memory_planning", "which memory an intermediate uses"),
    _dispatch((GPU,), "combo_kernels", "independent kernels in one launch"),
    _dispatch((GPU,), "benchmark_fusion", "merges kernels only where that measured faster"),
    _dispatch((GPU,), "coordinate_descent_tuning", "block sizes and warps"),
    _dispatch((GPU,), "coordinate_descent_check_all_directions", "block sizes and warps"),
    _dispatch((GPU,), "coordinate_descent_search_radius", "block sizes and warps"),
    _dispatch((GPU,), "dynamic_scale_rblock", "block sizes"),
    _dispatch((GPU,), "max_autotune", "picks by time among kernels of one input precision"),
    _dispatch((GPU,), "max_autotune_pointwise", "block sizes and warps"),
    _dispatch((GPU,), "max_autotune_gemm", "picks by time among products of one input precision"),
    _dispatch((GPU,), "max_autotune_gemm_backends",
              "who computes a product; TF32 follows torch's own flag in each"),
    _dispatch((GPU,), "max_autotune_conv_backends",
              "who computes a convolution; TF32 follows torch's own flag in each"),
    _dispatch((GPU,), "triton.persistent_reductions", "whether a row stays in registers"),
    _dispatch((GPU,), "triton.cooperative_reductions", "order of a float32 sum"),
    _dispatch((GPU,), "triton.multi_kernel", "picks by time between looped and persistent reductions"),
    _dispatch((GPU,), "triton.mix_order_reduction", "order of a float32 sum"),
    _dispatch((GPU,), "triton.tile_reductions", "tiling of a reduction"),
    _dispatch((GPU,), "triton.prefer_nd_tiling", "tiling of a loop over independent elements"),
    _dispatch((GPU,), "triton.coalesce_tiling_analysis", "tiling of a loop over independent elements"),
    _dispatch((GPU,), "triton.max_tiles", "tiling of a loop over independent elements"),
    _dispatch((GPU,), "triton.tiling_prevents_pointwise_fusion", "which kernels are merged"),
    _dispatch((GPU,), "triton.tiling_prevents_reduction_fusion", "which kernels are merged"),
    _dispatch((GPU,), "triton.use_block_ptr", "how addresses are computed"),
    _dispatch((GPU,), "triton.min_split_scan_rblock", "order of a scan's partial sums"),
    _dispatch((CPU,), "cpp.simdlen", "width of the vector registers"),
    _dispatch((CPU,), "cpp.threads", "threads of the generated loops"),
    _dispatch((CPU,), "cpp.dynamic_threads", "threads of the generated loops"),
    _dispatch((CPU,), "cpp.min_chunk_size", "elements for each thread"),
    _dispatch((CPU,), "cpp.max_horizontal_fusion_size", "which kernels are merged"),
    _dispatch((CPU,), "cpp.no_redundant_loops", "loops that run once"),
    _dispatch((CPU,), "cpp.enable_tiling_heuristics", "tiling of a loop over independent elements"),
    _dispatch((CPU,), "cpp.enable_loop_tail_vec", "masked vectors for the last elements"),
    _dispatch((CPU,), "cpp.force_inline_kernel", "inlining of the same code"),
)

ALLOWED: Mapping[str, Option] = {option.name: option for option in _OPTIONS}

_PRECISION = "changes the rounding of results"
_WEIGHTS = "bakes weights in: later loads of other weights would be ignored"
_CHECKS = "switches a safety check off"
_CALLER = "changes what the caller sees (strides, random numbers)"

DENIED: Mapping[str, str] = {
    "freezing": _WEIGHTS,
    "freezing_discard_parameters": _WEIGHTS,
    "always_keep_tensor_constants": _WEIGHTS,
    "enable_linear_binary_folding": "folds operations into weights, which rounds them anew",
    "efficient_conv_bn_eval_fx_passes": "folds BatchNorm into weights, which rounds them anew",
    "use_fast_math": "allows approximate division, square roots and exponentials",
    "cuda.use_fast_math": "allows approximate division, square roots and exponentials",
    "cpp.enable_unsafe_math_opt_flag": "allows the C++ compiler to reassociate and to ignore NaN",
    "cpp.enable_floating_point_contract_flag": "lets the C++ compiler fuse multiply and add: " + _PRECISION,
    "cpp.use_decompose_tanh": "replaces tanh by an approximation",
    "cpp.use_small_dequant_buffer": _PRECISION,
    "triton.codegen_upcast_to_fp32": "computes half types in their own precision: " + _PRECISION,
    "emulate_precision_casts": _PRECISION,
    "emulate_precision_casts_on_saved_tensors": _PRECISION,
    "eager_numerics.disable_ftz": _PRECISION,
    "eager_numerics.division_rounding": _PRECISION,
    "eager_numerics.use_pytorch_libdevice": _PRECISION,
    "force_same_precision": _PRECISION,
    "keep_addmm_fused_for_half_dtypes": _PRECISION,
    "triton.native_matmul": "may compute float32 products in TF32: " + _PRECISION,
    "mixed_mm_choice": _PRECISION,
    "use_mixed_mm": _PRECISION,
    "force_fuse_int_mm_with_mul": _PRECISION,
    "fallback_random": _CALLER,
    "align_random_eager": _CALLER,
    "keep_output_stride": _CALLER,
    "pad_outputs": _CALLER,
    "pad_channels_last": _CALLER,
    "size_asserts": _CHECKS,
    "alignment_asserts": _CHECKS,
    "scalar_asserts": _CHECKS,
    "nan_asserts": "adds checks to one side of the comparison only",
    "assert_indirect_indexing": _CHECKS,
    "assume_aligned_inputs": "assumes an alignment that the caller may break",
    "assume_32bit_indexing": "assumes a size that the caller may break",
    "static_weight_shapes": "assumes shapes that the caller may break",
    "unsafe_skip_cache_dynamic_shape_guards": _CHECKS,
    "triton.skip_cudagraph_warmup": _CHECKS,
    "triton.fast_path_cudagraph_asserts": _CHECKS,
    "triton.slow_path_cudagraph_asserts": _CHECKS,
    "triton.divisible_by_16": _CHECKS,
    "triton.enable_pdl": "lets a kernel start before the one it depends on has ended",
    "allow_tf32": "TF32 keeps 10 bits of the mantissa: " + _PRECISION,
    "float32_matmul_precision": "TF32 keeps 10 bits of the mantissa: " + _PRECISION,
}


def check(lever: Lever, options: Mapping[str, object], device: str) -> list[Violation]:
    """What is wrong with `options` under `lever` on `device` (`cuda`, `cuda:N`, `pretend` or `cpu`); [] if nothing."""
    kind = CPU if device == "cpu" else GPU
    if not options:
        return [Violation(0, "option", "no option is set")]
    found = []
    for name, value in options.items():
        option = ALLOWED.get(name)
        if name in DENIED:
            found.append(Violation(0, "option", f"{name} is refused: {DENIED[name]}"))
        elif option is None:
            found.append(Violation(0, "option", f"{name} is not on the allow-list"))
        elif option.lever != lever:
            found.append(Violation(0, "option", f"{name} belongs to the lever {option.lever}, not {lever}"))
        elif kind not in option.devices:
            found.append(Violation(0, "option", f"{name} does not apply to {kind}"))
        elif not option.accepts(value):
            found.append(Violation(0, "option", f"{name} may be {', '.join(map(repr, option.values))}, not {value!r}"))
    return found
