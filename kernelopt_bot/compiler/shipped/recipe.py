"""The Inductor options that a recipe may hold, and their values. Why each is harmless: `contract/options.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SWITCH = (False, True)
RECIPE_VALUES: Mapping[str, tuple[Any, ...]] = {
    "triton.cudagraphs": _SWITCH,
    "triton.cudagraph_support_input_mutation": _SWITCH,
    "graph_partition": _SWITCH,
    "cpp_wrapper": _SWITCH,
    "layout_optimization": _SWITCH,
    "force_layout_optimization": _SWITCH,
    "comprehensive_padding": _SWITCH,
    "shape_padding": _SWITCH,
    "conv_1x1_as_mm": _SWITCH,
    "decompose_mem_bound_mm": _SWITCH,
    "epilogue_fusion": _SWITCH,
    "aggressive_fusion": _SWITCH,
    "max_fusion_size": (8, 16, 32, 64, 128, 256),
    "loop_ordering_after_fusion": _SWITCH,
    "loop_index_inversion_in_fusion": _SWITCH,
    "pick_loop_orders": _SWITCH,
    "permute_fusion": _SWITCH,
    "expand_dimension_for_pointwise_nodes": _SWITCH,
    "realize_reads_threshold": (1, 2, 4, 8, 16),
    "realize_opcount_threshold": (10, 20, 30, 60, 100, 200),
    "realize_acc_reads_threshold": (2, 4, 8, 16, 32),
    "unroll_reductions_threshold": (1, 2, 4, 8, 16, 32),
    "split_reductions": _SWITCH,
    "min_num_split": (0, 2, 4, 8, 16, 32),
    "online_softmax": _SWITCH,
    "max_pointwise_cat_inputs": (0, 2, 4, 8, 16, 32),
    "force_pointwise_cat": _SWITCH,
    "split_cat_fx_passes": _SWITCH,
    "reorder_for_locality": _SWITCH,
    "inplace_buffers": _SWITCH,
    "memory_planning": _SWITCH,
    "combo_kernels": _SWITCH,
    "benchmark_fusion": _SWITCH,
    "coordinate_descent_tuning": _SWITCH,
    "coordinate_descent_check_all_directions": _SWITCH,
    "coordinate_descent_search_radius": (1, 2, 3),
    "dynamic_scale_rblock": _SWITCH,
    "max_autotune": _SWITCH,
    "max_autotune_pointwise": _SWITCH,
    "max_autotune_gemm": _SWITCH,
    "max_autotune_gemm_backends": ("ATEN", "TRITON", "ATEN,TRITON"),
    "max_autotune_conv_backends": ("ATEN", "TRITON", "ATEN,TRITON"),
    "triton.persistent_reductions": _SWITCH,
    "triton.cooperative_reductions": _SWITCH,
    "triton.multi_kernel": (0, 1),
    "triton.mix_order_reduction": _SWITCH,
    "triton.tile_reductions": _SWITCH,
    "triton.prefer_nd_tiling": _SWITCH,
    "triton.coalesce_tiling_analysis": _SWITCH,
    "triton.max_tiles": (1, 2, 3),
    "triton.tiling_prevents_pointwise_fusion": _SWITCH,
    "triton.tiling_prevents_reduction_fusion": _SWITCH,
    "triton.use_block_ptr": _SWITCH,
    "triton.min_split_scan_rblock": (64, 128, 256, 512, 1024),
    "cpp.simdlen": (256, 512),
    "cpp.threads": (1, 2, 4, 8, 16, 32, 64),
    "cpp.dynamic_threads": _SWITCH,
    "cpp.min_chunk_size": (64, 256, 512, 1024, 4096, 16384, 65536),
    "cpp.max_horizontal_fusion_size": (0, 4, 8, 16, 32, 64),
    "cpp.no_redundant_loops": _SWITCH,
    "cpp.enable_tiling_heuristics": _SWITCH,
    "cpp.enable_loop_tail_vec": _SWITCH,
    "cpp.force_inline_kernel": _SWITCH,
}
"""Name -> values. An option outside this table can run a command of the host's (`cpp.cxx`) or loosen a check."""


def recipe_permits(name: str, value: object) -> bool:
    """Whether a recipe may set the option to this value; bool, int and float are told apart."""
    return any(type(value) is type(v) and value == v for v in RECIPE_VALUES.get(name, ()))
